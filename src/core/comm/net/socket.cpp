#include "core/comm/net/socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>

#include "core/base/error.h"
#include "core/base/sleep.h"
#include "core/comm/net/interrupt.h"

namespace nxd {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const char* host, const std::string& port, int type, int flags, int* error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  *error = getaddrinfo(host, port.c_str(), &hints, &list);
  return Addresses(*error == 0 ? list : nullptr, &freeaddrinfo);
}

std::string resolve_error(int error) {
  return error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
}

// Why a name with an interface behind it, as addresses of one link have, means nothing here.
std::string scope_note(const std::string& host) {
  const size_t mark = host.find('%');
  if (mark == std::string::npos || is_interface_name(host.substr(mark + 1))) return "";
  return text("; this host has no network interface \"", host.substr(mark + 1),
              "\", of which it is an address: expected one that all hosts reach");
}

// Empty when this host has no such family of addresses. Short of descriptors or memory is IO.
Fd make_socket(int family, int type) {
  Fd fd(::socket(family, type | SOCK_CLOEXEC, 0));
  const bool short_of = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (!fd && short_of) fail(NXD_ERROR_IO, "cannot make a socket: ", std::strerror(errno));
  return fd;
}

// Waits for events on a descriptor; false when the deadline passed.
bool wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    constexpr int64_t kSlice = 50;  // ms between looks at the interrupt callback
    const int64_t left = std::min(deadline.remaining_ms(), kSlice);
    const int n = ::poll(&p, 1, static_cast<int>(left));
    if (n > 0) return true;
    InterruptScope::check();
    if (n == 0 && deadline.expired()) return false;
    if (n < 0 && errno != EINTR) {
      fail(NXD_ERROR_IO, "poll: ", std::strerror(errno));
    }
  }
}

// Empty, with the number of an error, when it does not come about.
Fd connect_once(const addrinfo& address, const Deadline& deadline, int* error) {
  Fd fd = make_socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK);
  *error = errno;
  if (!fd) return Fd();
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  *error = errno;
  if (*error != EINPROGRESS) return Fd();
  *error = ETIMEDOUT;
  if (!wait_for(fd.get(), POLLOUT, deadline)) return Fd();
  socklen_t size = sizeof *error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, error, &size) != 0 || *error != 0) return Fd();
  return fd;
}

// An abstract name starts with a zero byte and has no end mark: its size counts.
socklen_t local_address(const std::string& name, sockaddr_un* out) {
  *out = sockaddr_un{};
  out->sun_family = AF_UNIX;
  check_internal(name.size() < sizeof out->sun_path,
                 "the name of a Unix socket is too long: ", name);
  std::memcpy(out->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Fd make_local() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) fail(NXD_ERROR_IO, "cannot make a Unix socket: ", std::strerror(errno));
  return fd;
}

std::string numeric_address(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  explicit Address(const addrinfo& info) : size(info.ai_addrlen) {
    std::memcpy(&storage, info.ai_addr, info.ai_addrlen);
  }
  explicit Address(int family) {  // all of this host's
    storage.ss_family = static_cast<sa_family_t>(family);
    size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  in_port_t& port() {
    return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(storage).sin_port;
  }
  bool is_loopback() const {
    if (storage.ss_family == AF_INET6) {
      return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
    }
    return (ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24) == 127;
  }
  bool operator==(const Address& other) const {
    return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
  }
};

// The addresses of this host that a name stands for; none: listen at all of them.
std::vector<Address> own_addresses(const std::string& host) {
  std::vector<Address> own;
  if (host.empty()) return own;
  int error = 0;
  const auto list = resolve(host.c_str(), "0", SOCK_STREAM, 0, &error);
  for (const addrinfo* a = list.get(); a; a = a->ai_next) {
    const Fd fd = make_socket(a->ai_family, SOCK_STREAM);
    if (!fd || ::bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    const Address address(*a);
    if (std::find(own.begin(), own.end(), address) == own.end()) own.push_back(address);
  }
  const bool is_name =
      host != "localhost" && !resolve(host.c_str(), "0", SOCK_STREAM, AI_NUMERICHOST, &error);
  const auto is_loopback = [](const Address& address) { return address.is_loopback(); };
  if (is_name && std::all_of(own.begin(), own.end(), is_loopback)) own.clear();
  return own;
}

// Empty, with errno set, when the address cannot be listened at.
Fd listen_at(Address address, int port, int* out_port) {
  Fd fd = make_socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK);
  if (!fd) return fd;
  const int on = 1, off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // A socket for all addresses of IPv6 takes those of IPv4 as well.
  ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  address.port() = htons(static_cast<uint16_t>(port));
  if (::bind(fd.get(), address.raw(), address.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return Fd();
  }
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  *out_port = ntohs(address.port());
  return fd;
}

[[noreturn]] void fail_to_listen(int port) {
  fail(NXD_ERROR_IO, "cannot listen on port ", port, ": ", std::strerror(errno));
}

// Hosts without IPv6 have a plain socket.
Fd listen_everywhere(int port, int* out_port) {
  for (const int family : {AF_INET6, AF_INET}) {
    if (Fd fd = listen_at(Address(family), port, out_port)) return fd;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
  }
  fail_to_listen(port);
}

}  // namespace

std::vector<Fd> listen_tcp(const std::string& host, int port, int* out_port) {
  const std::vector<Address> addresses = own_addresses(host);
  std::vector<Fd> listeners;
  if (addresses.empty()) {
    listeners.push_back(listen_everywhere(port, out_port));
    return listeners;
  }
  // A port that is free at one address may be taken at the next.
  for (int tries = port == 0 ? 16 : 1; listeners.size() < addresses.size(); --tries) {
    if (tries == 0) fail_to_listen(port);
    listeners.clear();
    *out_port = port;
    for (const Address& address : addresses) {
      Fd fd = listen_at(address, *out_port, out_port);
      if (!fd) break;
      listeners.push_back(std::move(fd));
    }
  }
  return listeners;
}

Fd connect_tcp(const std::string& host, int port, const Deadline& deadline) {
  auto pause = std::chrono::milliseconds(5);
  for (;;) {
    int error = 0;
    const auto list = resolve(host.c_str(), std::to_string(port), SOCK_STREAM, 0, &error);
    if (error != 0 && error != EAI_AGAIN) {
      fail(NXD_ERROR_IO, "host \"", host, "\": ", resolve_error(error), scope_note(host));
    }
    std::string why = error != 0 ? resolve_error(error) : "";
    for (const addrinfo* a = list.get(); a; a = a->ai_next) {
      if (Fd fd = connect_once(*a, deadline, &error)) return fd;
      why = std::strerror(error);
    }
    if (deadline.expired()) {
      fail(NXD_ERROR_TIMEOUT, "no store answers at ", host, ":", port, ": ", why);
    }
    InterruptScope::check();
    sleep_for(std::min(pause, std::chrono::milliseconds(deadline.remaining_ms())));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

Fd listen_local(const std::string& name) {
  Fd fd = make_local();
  sockaddr_un address;
  const socklen_t size = local_address(name, &address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    fail(NXD_ERROR_IO, "cannot listen on the Unix socket @", name, ": ", std::strerror(errno));
  }
  return fd;
}

Fd connect_local(const std::string& name, const Deadline& deadline) {
  sockaddr_un address;
  const socklen_t size = local_address(name, &address);
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    // Never in progress: either the server takes it, or no process listens, or too many are
    // waiting.
    Fd fd = make_local();
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) {
      if (is_own_user(fd.get())) return fd;
      fail(NXD_ERROR_IO, "the Unix socket @", name, " is served by another user");
    }
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      fail(NXD_ERROR_IO, "cannot connect to the Unix socket @", name, ": ", std::strerror(errno));
    }
    if (deadline.expired()) {
      fail(NXD_ERROR_TIMEOUT, "no store answers at the Unix socket @", name, " of this host");
    }
    sleep_for(std::min(pause, std::chrono::milliseconds(deadline.remaining_ms())));
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
}

bool send_all(int fd, const void* data, size_t size, const Deadline& deadline) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::send(fd, bytes, size, MSG_NOSIGNAL);
    if (n > 0) {
      bytes += n;
      size -= static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(fd, POLLOUT, deadline)) fail(NXD_ERROR_TIMEOUT, "no answer");
    } else if (n < 0 && errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool receive_all(int fd, void* data, size_t size, const Deadline& deadline) {
  char* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::recv(fd, bytes, size, 0);
    if (n > 0) {
      bytes += n;
      size -= static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(fd, POLLIN, deadline)) fail(NXD_ERROR_TIMEOUT, "no answer");
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::string local_address_toward(const std::string& host) {
  int error = 0;
  // Connecting a datagram socket asks the routing table and sends nothing.
  const auto list = resolve(host.c_str(), "9", SOCK_DGRAM, 0, &error);
  for (const addrinfo* a = list.get(); a; a = a->ai_next) {
    const Fd fd = make_socket(a->ai_family, SOCK_DGRAM);
    if (!fd || ::connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) continue;
    return numeric_address(reinterpret_cast<sockaddr*>(&local), size);
  }
  return "";
}

namespace {

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces own_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    fail(NXD_ERROR_IO, "cannot list the network interfaces: ", std::strerror(errno));
  }
  return Interfaces(list, &freeifaddrs);
}

socklen_t size_of_address(int family) {
  return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

bool is_of_one_link(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

// An address that is known on its own link alone means another interface to other hosts.
std::string first_external_address() {
  const Interfaces list = own_interfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list.get(); i; i = i->ifa_next) {
      if (!i->ifa_addr || i->ifa_addr->sa_family != family) continue;
      if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
      if (is_of_one_link(*i->ifa_addr)) continue;
      return numeric_address(i->ifa_addr, size_of_address(family));
    }
  }
  return "";
}

std::string address_of_interface(const std::string& name) {
  const Interfaces list = own_interfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list.get(); i; i = i->ifa_next) {
      if (!i->ifa_addr || i->ifa_addr->sa_family != family || name != i->ifa_name) continue;
      return numeric_address(i->ifa_addr, size_of_address(family));
    }
  }
  return "";
}

namespace {

// Not of all hosts, of several or of all of a link, where a socket can be bound as well.
bool is_of_one_host(const sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    const in6_addr& host = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    return !IN6_IS_ADDR_UNSPECIFIED(&host) && !IN6_IS_ADDR_MULTICAST(&host);
  }
  const in_addr_t host = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return host != INADDR_ANY && host != INADDR_BROADCAST && !IN_MULTICAST(host);
}

}  // namespace

bool is_local_address(const std::string& host) {
  int error = 0;
  const auto list = resolve(host.c_str(), "0", SOCK_STREAM, 0, &error);
  for (const addrinfo* a = list.get(); a; a = a->ai_next) {
    if (!is_of_one_host(*a->ai_addr)) continue;
    const Fd fd = make_socket(a->ai_family, SOCK_STREAM);
    if (fd && ::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return true;
  }
  return false;
}

bool is_interface_name(const std::string& name) { return if_nametoindex(name.c_str()) != 0; }

}  // namespace nxd
