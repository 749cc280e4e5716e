// Bytes of a stranger, or of a peer that knows the secret, to the port at which a rank listens for
// its peers; and a peer's invitation as it is read from the store. The first byte chooses.
#include <netdb.h>
#include <sys/socket.h>

#include <sstream>

#include "core/comm/connector.h"
#include "fuzz.h"

namespace {

constexpr int64_t kPatienceMs = 5000;
constexpr size_t kSecretAt = 8, kSecretSize = 32;

// Nothing of a fuzzer leaves this host.
bool is_loopback(const std::string& invitation) {
  std::string host;
  std::istringstream(invitation) >> host;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return true;  // goes nowhere
  char name[NI_MAXHOST] = "";
  ::getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(list);
  return std::string(name).starts_with("127.") || std::string(name) == "::1";
}

void dial(const std::string& invitation) {
  if (!is_loopback(invitation)) return;
  nxd_fuzz::parse([&] {
    try {
      nxd::Connector::Dial(invitation, 1, "group").wait(std::chrono::milliseconds(1));
    } catch (const nxd::Connector::Refused&) {
    }
  });
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
  nxd::Connector connector("127.0.0.1", 0);
  std::string host, secret;
  int port = 0;
  std::istringstream(connector.invitation()) >> host >> port >> secret;
  if (manner & 1 && bytes.size() >= kSecretAt + kSecretSize) {
    bytes.replace(kSecretAt, kSecretSize, secret);
  }
  const nxd::Deadline deadline = nxd::Deadline::after_ms(kPatienceMs);
  const nxd::Fd guest = nxd::connect_tcp(host, port, deadline);
  // In two pieces, as a network may cut it.
  const size_t half = bytes.size() / 2;
  nxd::send_all(guest.get(), bytes.data(), half, deadline);
  connector.take(1, "group", std::chrono::milliseconds(0));
  nxd::send_all(guest.get(), bytes.data() + half, bytes.size() - half, deadline);
  ::shutdown(guest.get(), SHUT_WR);
  for (int i = 0; i < 2; ++i) {
    const nxd::Fd taken = connector.take(1, "group", std::chrono::milliseconds(0));
    nxd_fuzz::expect(!taken || bytes.find(secret) == kSecretAt, "a stranger was taken for a peer");
  }
  return 0;
}
