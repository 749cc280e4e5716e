// The client of a TCP store whose server is silent for a while.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/comm/store/tcp_store.h"
#include "core/comm/store/tcp_store_server.h"

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

void refused(nxd_status_t status, const char* part, const std::function<void()>& call) {
  std::string message = "nothing was refused";
  nxd_status_t given = NXD_OK;
  try {
    call();
  } catch (const nxd::Error& e) {
    given = e.status();
    message = e.what();
  }
  if (given != status || message.find(part) == std::string::npos) {
    fail_msg("expected \"%s\", got: %s", part, message.c_str());
  }
}

// The caller's timeout counts when the store's own is longer, and the other way round.
void silent_servers_are_not_waited_for(void**) {
  Serving serving;
  TcpStore patient("127.0.0.1", serving.port(), 40000), hasty("127.0.0.1", serving.port(), 1500);
  serving.stop();
  refused(NXD_ERROR_TIMEOUT, "within 1100 ms", [&] { patient.wait_bounded("key", 1100); });
  refused(NXD_ERROR_TIMEOUT, "within 1500 ms", [&] { hasty.wait_bounded("key", 30000); });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(silent_servers_are_not_waited_for),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
