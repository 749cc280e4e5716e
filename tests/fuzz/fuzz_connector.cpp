// Bytes to the port at which a rank listens for its peers, from the start or behind a rank's hello,
// where a proof is wanted; and a peer's address as it is read from the store. The first byte
// chooses.
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <sstream>

#include "core/comm/net/connector.h"
#include "core/comm/net/peer_hello.h"
#include "fuzz.h"

namespace {

constexpr int kTimeoutMs = 5000;
constexpr char kPurpose[] = "group";

// Nothing of a fuzzer leaves this host.
bool is_loopback(const std::string& peer_address) {
  std::string host;
  std::istringstream(peer_address) >> host;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return true;  // goes nowhere
  char name[NI_MAXHOST] = "";
  ::getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(list);
  return std::string(name).starts_with("127.") || std::string(name) == "::1";
}

void dial(const std::string& peer_address) {
  if (!is_loopback(peer_address)) return;
  static const nxd::Connector own("127.0.0.1", 1, std::nullopt);
  nxd_fuzz::parse([&] {
    try {
      nxd::Connector::Dial(own, peer_address, 0, kPurpose).wait(std::chrono::milliseconds(1));
    } catch (const nxd::Connector::Refused&) {
    } catch (const nxd::Connector::Unproven&) {
    }
  });
}

// The hello of a rank of the world.
std::string hello() {
  nxd::PeerHello words;
  words.from = 1;
  words.to = 0;
  words.purpose_size = sizeof kPurpose - 1;
  return std::string(reinterpret_cast<const char*>(&words), sizeof words) + kPurpose;
}

// Until the other end has closed the connection.
bool is_let_go(int fd) {
  char heard[256];
  for (pollfd p{fd, POLLIN, 0}; ::poll(&p, 1, kTimeoutMs) != 0;) {
    const ssize_t n = ::recv(fd, heard, sizeof heard, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  const int manner = in.byte();
  std::string bytes = in.rest();
  if (manner & 2) {
    dial(bytes);
    return 0;
  }
  if (manner & 1) bytes.insert(0, hello());
  nxd::Connector connector("127.0.0.1", 0, std::nullopt);
  const auto address = nxd::PeerAddress::decode(connector.peer_address());
  nxd_fuzz::expect(address.has_value(), "a rank cannot read its own address");
  const nxd::Deadline deadline = nxd::Deadline::after_ms(kTimeoutMs);
  const nxd::Fd socket = nxd::connect_tcp(address->host, std::stoi(address->port), deadline);
  // In two pieces, as a network may cut it. The other end may have had enough before the second.
  const size_t half = bytes.size() / 2;
  const auto send = [&](const char* from, size_t count) {
    return ::send(socket.get(), from, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count);
  };
  if (send(bytes.data(), half)) send(bytes.data() + half, bytes.size() - half);
  ::shutdown(socket.get(), SHUT_WR);
  nxd_fuzz::expect(is_let_go(socket.get()), "a stranger was kept");
  nxd_fuzz::expect(!connector.take(1, kPurpose, std::chrono::milliseconds(0)),
                   "a stranger was taken for a peer");
  return 0;
}
