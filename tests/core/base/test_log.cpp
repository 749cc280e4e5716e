// Log lines of a forked child, while another thread of its parent logs.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/base/log.h"

#include "support/check.h"

namespace {

void drop(nxd_log_level_t, const char*, void*) {}

void a_child_logs(void**) {
  nxd::set_log_callback(drop, nullptr, nullptr);
  std::atomic<bool> stops{false};
  std::thread logs([&] {
    while (!stops) nxd::log(NXD_LOG_ERROR, "a line");
  });
  int hung = 0;
  for (int i = 0; i < 1000 && hung == 0; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      nxd::log(NXD_LOG_ERROR, "a line of the child's");
      ::_exit(0);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    if (status != 0) ++hung;
  }
  stops = true;
  logs.join();
  nxd::set_log_callback(nullptr, nullptr, nullptr);
  assert_int_equal(hung, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_child_logs)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
