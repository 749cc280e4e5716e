// The client of a TCP store whose server is silent for a while, ends, or is full.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "core/base/error.h"
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
      cmocka_unit_test(full_stores_say_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
