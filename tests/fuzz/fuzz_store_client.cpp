// Bytes of a store's server to its client. The first byte says how the server takes the client's
// probe; the rest is its answer on the connection that follows, whatever it is asked.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store.h"
#include "fuzz.h"

namespace {

// A client whose connection ends tries again until then: short, so that many inputs are tried.
constexpr int64_t kTimeoutMs = 20;

// Answers connections in turn: the first is the probe.
class Server {
 public:
  Server(const std::string& name, const std::string& probe_answer, const std::string& answer)
      : listener_(nxd::listen_local(name)), thread_([this, probe_answer, answer] {
          serve(probe_answer);
          while (!stopping_) serve(answer);
        }) {}
  ~Server() {
    stopping_ = true;
    thread_.join();
  }

 private:
  nxd::Fd accept() {
    while (!stopping_) {
      pollfd p{listener_.get(), POLLIN, 0};
      if (::poll(&p, 1, 1) > 0) return nxd::Fd(::accept4(listener_.get(), nullptr, nullptr, 0));
    }
    return nxd::Fd();
  }
  void serve(const std::string& answer) {
    const nxd::Fd fd = accept();
    if (!fd) return;
    const ssize_t sent = ::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    static_cast<void>(sent);
    ::shutdown(fd.get(), SHUT_WR);
    char chunk[4096];
    while (!stopping_) {
      pollfd p{fd.get(), POLLIN, 0};
      if (::poll(&p, 1, 1) > 0 && ::recv(fd.get(), chunk, sizeof chunk, 0) <= 0) return;
    }
  }

  std::atomic<bool> stopping_{false};
  nxd::Fd listener_;
  std::thread thread_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static int number = 0;
  const std::string name = nxd::text("nxd-fuzz-client-", ::getpid(), "-", number++);
  nxd_fuzz::Input in(data, size);
  const int manner = in.byte();
  const std::string probe_answer(manner & 1 ? 32 : manner & 2 ? 5 : 0, '\1');
  const int first = manner >> 2 & 3;
  const Server server(name, probe_answer, in.rest());
  nxd_fuzz::parse([&] {
    nxd::TcpStore store(name, 0, kTimeoutMs);
    // Another call is first each time, so that each meets the whole answer.
    for (int i = 0; i < 4; ++i) {
      nxd_fuzz::parse([&] {
        switch ((first + i) % 4) {
          case 0: store.get("key"); break;
          case 1: store.get_all({"one", "two", "three"}); break;
          case 2: store.add("counter", 1); break;
          default: store.set("key", "value"); break;
        }
      });
    }
  });
  return 0;
}
