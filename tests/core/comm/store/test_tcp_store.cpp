// The client of a TCP store whose server is silent for a while, ends, is full, or is none of ours.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store.h"
#include "core/comm/store/tcp_store_server.h"

#include "support/rejection.h"

#include "support/check.h"

namespace {

using nxd::TcpStore;
using nxd::TcpStoreServer;

// A server in a process of its own, which can be stopped.
class Serving {
 public:
  Serving() {
    int told[2];
    assert_int_equal(::pipe(told), 0);
    process_ = ::fork();
    if (process_ == 0) {
      const TcpStoreServer server("127.0.0.1", 0);
      const int port = server.port();
      if (::write(told[1], &port, sizeof port) != sizeof port) ::_exit(1);
      for (;;) ::pause();
    }
    assert_int_equal(::read(told[0], &port_, sizeof port_), sizeof port_);
    for (const int fd : told) ::close(fd);
  }
  ~Serving() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  void stop() {
    ::kill(process_, SIGSTOP);
    ::waitpid(process_, nullptr, WUNTRACED);
  }
  void go_on() { ::kill(process_, SIGCONT); }
  int port() const { return port_; }

 private:
  pid_t process_ = -1;
  int port_ = 0;
};

// The caller's timeout counts when the store's own is longer, and the other way round.
void silent_servers_are_not_waited_for(void**) {
  Serving serving;
  TcpStore patient("127.0.0.1", serving.port(), 40000), hasty("127.0.0.1", serving.port(), 1500);
  serving.stop();
  nxd_test::rejection(NXD_ERROR_TIMEOUT, "within 1100 ms",
                      [&] { patient.wait_bounded("key", 1100); });
  nxd_test::rejection(NXD_ERROR_TIMEOUT, "within 1500 ms",
                      [&] { hasty.wait_bounded("key", 30000); });
}

std::string sum_of(TcpStore& store) { return store.get("sum").value_or("none"); }

// A request that was not answered in time is not repeated, and the next one is as usual.
void servers_go_on(void**) {
  Serving serving;
  TcpStore store("127.0.0.1", serving.port(), 1500), other("127.0.0.1", serving.port(), 40000);
  store.set("key", "value");
  serving.stop();
  nxd_test::rejection(NXD_ERROR_TIMEOUT, "no answer", [&] { store.add("sum", 1); });
  nxd_test::rejection(NXD_ERROR_TIMEOUT, "no answer",
                      [&] { store.get("key"); });  // nor can it connect
  serving.go_on();
  const auto sum = other.add("sum", 100);
  assert_true(sum == 100 || sum == 101);
  assert_string_equal(store.get("key").value_or("none").c_str(), "value");
  assert_int_equal(store.add("sum", 1000) / 1000, 1);
  store.set("key", "another value");
  assert_string_equal(other.get("key").value_or("none").c_str(), "another value");
  assert_true(sum_of(other) == "1100" || sum_of(other) == "1101");
}

// One that has closed the connection has ended, and so has a store that was told to stop.
void lost_servers_are_lost(void**) {
  auto server = std::make_shared<TcpStoreServer>("127.0.0.1", 0);
  TcpStore near("127.0.0.1", server->port(), 40000, server);
  TcpStore far("127.0.0.1", server->port(), 40000);
  near.stop_serving();
  for (int i = 0; i < 2; ++i) {
    nxd_test::rejection(NXD_ERROR_IO, "was lost", [&] { near.get("key"); });
    nxd_test::rejection(NXD_ERROR_IO, "was lost", [&] { far.get("key"); });
  }
}

// Why nothing answers is in the message: here a port that a socket has and nobody listens at.
void absent_servers_have_a_reason(void**) {
  const int bound = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  assert_int_equal(::bind(bound, raw, size) | ::getsockname(bound, raw, &size), 0);
  const int port = ntohs(address.sin_port);
  nxd_test::rejection(NXD_ERROR_TIMEOUT, ": Connection refused",
                      [&] { TcpStore("127.0.0.1", port, 50); });
  ::close(bound);
}

// A server whose answers a test writes: to each connection, in their order, all that it is to hear.
class Scripted {
 public:
  explicit Scripted(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = nxd::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    assert_int_equal(::bind(listener_.get(), raw, size) | ::listen(listener_.get(), 8) |
                         ::getsockname(listener_.get(), raw, &size),
                     0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  // Its clients have left.
  ~Scripted() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  int port() const { return port_; }

 private:
  // An empty answer is a connection that is closed.
  void serve() {
    for (const std::string& answer : answers_) {
      nxd::Fd fd(::accept(listener_.get(), nullptr, nullptr));
      if (!fd) return;
      char words[4096];
      if (::recv(fd.get(), words, sizeof words, 0) <= 0 || answer.empty()) continue;
      if (::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) continue;
      connections_.push_back(std::move(fd));
    }
  }

  std::vector<std::string> answers_;
  nxd::Fd listener_;
  int port_ = 0;
  std::vector<nxd::Fd> connections_;
  std::thread thread_;
};

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// A size that no value has is an error, and no memory is taken for it. The next request does not
// read on behind it.
void values_without_bound(void**) {
  using namespace nxd::tcp_store;
  const auto ask = [](uint64_t size, const char* part) {
    const std::string open(1, char{kOpenStore}), ready(1, char{kReady});
    const Scripted server({open + ready + bytes_of(size) + "x"});
    TcpStore store("127.0.0.1", server.port(), 1500);
    nxd_test::rejection(size > (uint64_t{1} << 30) ? NXD_ERROR_IO : NXD_ERROR_TIMEOUT, part,
                        [&] { store.get("key"); });
    if (size > (uint64_t{1} << 30)) {
      nxd_test::rejection(NXD_ERROR_IO, "was lost", [&] { store.get("key"); });
    }
  };
  ask((uint64_t{1} << 30) + 1, "answers with a value of 1073741825 bytes");
  ask(uint64_t{1} << 30, "no answer");
}

// A server that answers as neither a store of ours does nor one of torch's.
void strangers_are_no_stores(void**) {
  using namespace nxd::tcp_store;
  const auto counts = [](int64_t last) {
    return bytes_of(int64_t{3}) + bytes_of(int64_t{0}) + bytes_of(int64_t{1} << 40) +
           bytes_of(last);
  };
  const auto reject = [](const std::vector<std::string>& answers) {
    const Scripted server(answers);
    nxd_test::rejection(NXD_ERROR_IO, "its answers are of another protocol",
                        [&] { TcpStore("127.0.0.1", server.port(), 20000); });
  };
  for (const uint8_t answer : {uint8_t{7}, kChallenge, kWelcome}) reject({bytes_of(answer)});
  reject({"", counts(-1)});
  reject({"", counts((int64_t{1} << 40) + 1)});
  reject({"", "", "H"});
  // One of torch 2.x, and one of torch 1.x.
  const Scripted second({"", counts(7), "x"}),
      first({"", "", std::string(1, char{kNotReady}), "x"});
  for (const Scripted* server : {&second, &first}) TcpStore("127.0.0.1", server->port(), 20000);
}

// A store of torch's has no secret to prove, so a process with one does not talk to it.
void torchs_stores_know_no_secret(void**) {
  const TcpStoreServer server("127.0.0.1", 0);
  const nxd::StoreAccess access{nxd::Secret::random().store_key(), true};
  nxd_test::rejection(NXD_ERROR_IO, "is torch's, which knows no secret",
                      [&] { TcpStore("127.0.0.1", server.port(), 20000, nullptr, access); });
}

// A value that there is no room for is an error, and the store goes on.
void full_stores_say_so(void**) {
  TcpStoreServer::Limits limits;
  limits.values = 1000;
  const TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  TcpStore store("127.0.0.1", server.port(), 40000);
  nxd_test::rejection(NXD_ERROR_OUT_OF_MEMORY, "take 0 bytes, and may take 1000",
                      [&] { store.set("large", std::string(1000, 'x')); });
  assert_false(store.get("large").has_value());
  store.set("key", std::string(700, 'x'));
  nxd_test::rejection(NXD_ERROR_OUT_OF_MEMORY, "no room for the value of key \"sum\"",
                      [&] { store.add("sum", 1); });
  nxd_test::rejection(NXD_ERROR_OUT_OF_MEMORY, "no room for the value of key \"small\"",
                      [&] { store.set("small", "x"); });
  assert_string_equal(sum_of(store).c_str(), "none");
  store.set("key", "value");
  assert_int_equal(store.add("sum", 1), 1);
  assert_string_equal(store.get("key").value_or("none").c_str(), "value");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(silent_servers_are_not_waited_for),
      cmocka_unit_test(servers_go_on),
      cmocka_unit_test(lost_servers_are_lost),
      cmocka_unit_test(absent_servers_have_a_reason),
      cmocka_unit_test(values_without_bound),
      cmocka_unit_test(strangers_are_no_stores),
      cmocka_unit_test(torchs_stores_know_no_secret),
      cmocka_unit_test(full_stores_say_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
