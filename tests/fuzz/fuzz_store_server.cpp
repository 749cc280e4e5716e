// Bytes of three clients to a store's server. The first byte says which of them greet by
// themselves. A record follows another: a byte whose high bits choose the client and whose low bits
// are the size of what it sends, or that it ends or sends all the rest.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store_protocol.h"
#include "core/comm/store/tcp_store_server.h"
#include "fuzz.h"

namespace {

constexpr int kClients = 3;
constexpr int kTimeoutMs = 5000;
constexpr size_t kMostAnswer = size_t{64} << 20;

void send(const nxd::Fd& fd, const std::string& bytes) {
  // The server may have let the client go.
  const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  static_cast<void>(sent);
}

// The server lets go of a client whose last byte it has read.
void await_end(const nxd::Fd& fd) {
  ::shutdown(fd.get(), SHUT_WR);
  size_t total = 0;
  for (;;) {
    pollfd p{fd.get(), POLLIN, 0};
    const int ready = ::poll(&p, 1, kTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;  // by libFuzzer's own timer
    nxd_fuzz::expect(ready > 0, "the server keeps a client that has ended");
    char chunk[65536];
    const ssize_t n = ::recv(fd.get(), chunk, sizeof chunk, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return;
    if (n > 0) total += static_cast<size_t>(n);
    nxd_fuzz::expect(total < kMostAnswer, "an answer without end");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static int number = 0;
  const std::string name = nxd::text("nxd-fuzz-server-", ::getpid(), "-", number++);
  nxd::TcpStoreServer server(name);
  std::vector<nxd::Fd> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(nxd::connect_local(name, nxd::Deadline::after_ms(kTimeoutMs)));
  }
  nxd_fuzz::Input in(data, size);
  const int greeting = in.byte();
  std::string hello(1, static_cast<char>(nxd::tcp_store::kValidate));
  hello.append(reinterpret_cast<const char*>(&nxd::tcp_store::kMagic), 4);
  for (int i = 0; i < kClients; ++i) {
    if (greeting >> i & 1) send(clients[static_cast<size_t>(i)], hello);
  }
  while (in.left() > 0) {
    const int record = in.byte(), length = record & 63;
    nxd::Fd& client = clients[static_cast<size_t>(record >> 6) % kClients];
    if (length == 62) {
      ::shutdown(client.get(), SHUT_WR);
    } else {
      send(client, length == 63 ? in.rest() : in.bytes(static_cast<size_t>(length)));
    }
  }
  for (const nxd::Fd& client : clients) await_end(client);
  return 0;
}
