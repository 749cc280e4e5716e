#include "core/comm/connector.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "core/base/error.h"
#include "core/base/fork_closed.h"
#include "core/comm/deadline.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

constexpr size_t kSecretBytes = 16;
constexpr size_t kKeyLimit = 512;
// Those who have connected and not said yet who they are. Beyond these, the rest waits in the
// kernel; who has said nothing for so long makes room.
constexpr size_t kGuestLimit = 128;
constexpr int64_t kPatienceMs = 1000;

// What a rank says first; the key follows.
struct Words {
  char magic[8] = {'n', 'x', 'd', 'p', 'e', 'e', 'r', '1'};
  char secret[kSecretBytes * 2] = {};
  int32_t from = -1;
  uint32_t key_size = 0;
};
static_assert(sizeof(Words) == 48);

std::string make_secret() {
  unsigned char bytes[kSecretBytes];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    fail(NXD_ERROR_IO, "getrandom: ", std::strerror(errno));
  }
  std::string out;
  for (const unsigned char byte : bytes) {
    out += "0123456789abcdef"[byte / 16];
    out += "0123456789abcdef"[byte % 16];
  }
  return out;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) fail(NXD_ERROR_IO, "address \"", host, "\": ", gai_strerror(error));
  return Addresses(list, &freeaddrinfo);
}

Fd make_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) fail(NXD_ERROR_IO, "socket: ", std::strerror(errno));
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Whether the descriptor is ready within the duration.
bool ready(int fd, short events, milliseconds duration) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, static_cast<int>(duration.count())) > 0;
}

}  // namespace

struct Connector::Guest {
  Fd fd;
  bool done = false;
  std::string said;
  Deadline patience = Deadline::after_ms(kPatienceMs);
};

Connector::Connector(const std::string& address, int rank) : secret_(make_secret()) {
  const auto list = resolve(address, "0", AI_PASSIVE);
  for (const addrinfo* a = list.get(); a && !listener_; a = a->ai_next) {
    Fd fd = make_socket(a->ai_family);
    if (::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) listener_ = std::move(fd);
  }
  if (!listener_ || ::listen(listener_.get(), SOMAXCONN) != 0) {
    fail(NXD_ERROR_IO, "rank ", rank, " cannot listen at ", address, ": ", std::strerror(errno));
  }
  close_in_forked_children(listener_.get());
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    fail(NXD_ERROR_IO, "rank ", rank, " cannot tell the address that it listens at");
  }
  invitation_ = text(host, " ", port, " ", secret_);
}

Connector::~Connector() { forget_in_forked_children(listener_.get()); }

Connector::Dial::Dial(const std::string& invitation, int own_rank, const std::string& key) {
  std::string host, port, secret;
  std::istringstream in(invitation);
  in >> host >> port >> secret;
  check_stream(in);
  Words words;
  check_internal(secret.size() == sizeof words.secret && key.size() <= kKeyLimit,
                 "an invitation of ", invitation.size(), " bytes, a key of ", key.size());
  std::memcpy(words.secret, secret.data(), secret.size());
  words.from = own_rank;
  words.key_size = static_cast<uint32_t>(key.size());
  words_.assign(reinterpret_cast<const char*>(&words), sizeof words);
  words_ += key;
  const auto list = resolve(host, port, AI_NUMERICHOST | AI_NUMERICSERV);
  fd_ = make_socket(list->ai_family);
  send_at_once(fd_.get());
  if (::connect(fd_.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    throw Refused(text("connect: ", std::strerror(errno)));
  }
}

Fd Connector::Dial::wait(milliseconds duration) {
  if (!ready(fd_.get(), POLLOUT, duration)) return Fd();
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) throw Refused(text("connect: ", std::strerror(error)));
  // The buffer of a fresh connection takes so few bytes in one piece.
  const ssize_t n = ::send(fd_.get(), words_.data(), words_.size(), MSG_NOSIGNAL);
  if (n != static_cast<ssize_t>(words_.size())) {
    throw Refused(text("greeting: ", n < 0 ? std::strerror(errno) : "cut short"));
  }
  return std::move(fd_);
}

Fd Connector::take(int from, const std::string& key, milliseconds duration) {
  // Of the one thread that waits for all, and puts down what came for others.
  struct Turn {
    Connector& connector;
    std::unique_lock<std::mutex>& lock;
    ~Turn() {
      lock.lock();
      connector.polling_ = false;
      connector.polled_.notify_all();
    }
  };
  const auto until = Deadline::after_ms(duration.count());
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    const auto found = arrived_.find({from, key});
    if (found != arrived_.end() && !found->second.empty()) {
      Fd fd = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) arrived_.erase(found);
      return fd;
    }
    if (until.expired()) return Fd();
    if (polling_) {
      polled_.wait_until(lock, until.at());
      continue;
    }
    polling_ = true;
    lock.unlock();
    const Turn turn{*this, lock};
    poll_once(milliseconds(until.remaining_ms()));
  }
}

void Connector::poll_once(milliseconds duration) {
  std::erase_if(guests_, [&](const auto& guest) {
    return guest->done || (guest->patience.expired() && guests_.size() >= kGuestLimit);
  });
  std::vector<pollfd> fds;
  for (const auto& guest : guests_) fds.push_back({guest->fd.get(), POLLIN, 0});
  const bool has_room = guests_.size() < kGuestLimit;
  if (has_room) fds.push_back({listener_.get(), POLLIN, 0});
  if (::poll(fds.data(), fds.size(), static_cast<int>(duration.count())) <= 0) return;
  for (size_t i = 0; i < guests_.size(); ++i) {
    if (fds[i].revents != 0) guests_[i]->done = !listen_to(*guests_[i]);
  }
  std::erase_if(guests_, [](const auto& guest) { return guest->done; });
  if (has_room && fds.back().revents) accept_guests();
}

void Connector::accept_guests() {
  while (guests_.size() < kGuestLimit) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    auto guest = std::make_unique<Guest>();
    guest->fd = std::move(fd);
    guests_.push_back(std::move(guest));
    guests_.back()->done = !listen_to(*guests_.back());
    if (guests_.back()->done) guests_.pop_back();
  }
}

// Reads no further than the words: what comes after them is Gloo's. False when the guest is done
// with, either taken in or let go.
bool Connector::listen_to(Guest& guest) {
  for (;;) {
    Words words;
    size_t wanted = sizeof words;
    if (guest.said.size() >= sizeof words) {
      std::memcpy(&words, guest.said.data(), sizeof words);
      const bool known = std::memcmp(words.magic, Words().magic, sizeof words.magic) == 0 &&
                         secret_.compare(0, secret_.size(), words.secret, sizeof words.secret) == 0;
      if (!known || words.key_size > kKeyLimit) return false;
      wanted += words.key_size;
    }
    if (guest.said.size() == wanted) {
      send_at_once(guest.fd.get());
      std::lock_guard<std::mutex> lock(mutex_);
      arrived_[{words.from, guest.said.substr(sizeof words)}].push_back(std::move(guest.fd));
      return false;
    }
    char chunk[sizeof words + kKeyLimit];
    const ssize_t n = ::recv(guest.fd.get(), chunk, wanted - guest.said.size(), 0);
    if (n > 0) {
      guest.said.append(chunk, static_cast<size_t>(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    } else if (errno != EINTR) {
      return true;
    }
  }
}

}  // namespace nxd
