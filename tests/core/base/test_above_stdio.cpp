// Descriptors of a program without standard input, output and error, among threads.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/above_stdio.h"

#include "support/check.h"

namespace {

int number_open() {
  int open_ones = 0;
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) open_ones += ::fcntl(fd, F_GETFD) != -1;
  return open_ones;
}

int open_null() { return ::open("/dev/null", O_RDWR | O_CLOEXEC); }

// Runs body in a child without these descriptors; it gives the number of the first step that fails.
void without_stdio(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) ::close(fd);
    ::_exit(body());
  }
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

void overlapping_holds(void**) {
  without_stdio([] {
    std::optional<nxd::StdioHeld> first, second;
    first.emplace();
    if (number_open() != 3) return 1;
    second.emplace();
    first.reset();
    const int of_others = open_null();
    if (of_others <= STDERR_FILENO) return 2;
    ::close(of_others);
    second.reset();
    return number_open() == 0 ? 0 : 3;
  });
}

// A file was opened before the hold, and moves while it lasts.
void moves_within_a_hold(void**) {
  without_stdio([] {
    const int low = open_null();
    std::optional<nxd::StdioHeld> hold(std::in_place);
    const int moved = nxd::above_stdio(low);
    if (low != 0 || moved <= STDERR_FILENO) return 1;
    const int of_others = open_null();
    if (of_others <= STDERR_FILENO) return 2;
    hold.reset();
    return number_open() == 0 ? 0 : 3;
  });
}

void ends_in_a_forked_child(void**) {
  without_stdio([] {
    const nxd::StdioHeld hold;
    const pid_t child = ::fork();
    if (child == 0) {
      if (number_open() != 0) ::_exit(1);
      { const nxd::StdioHeld own; }
      ::_exit(number_open() == 0 ? 0 : 2);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status == 0 && number_open() == 3 ? 0 : 1;
  });
}

// Threads that hold and open at one time: code of others is never given a low descriptor.
void many_threads(void**) {
  without_stdio([] {
    std::atomic<int> low{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&low, t] {
        for (int i = 0; i < 5000; ++i) {
          std::optional<nxd::StdioHeld> hold;
          if (t % 2 == 0) hold.emplace();
          const int fd = hold ? open_null() : nxd::above_stdio(open_null());
          low += fd <= STDERR_FILENO;
          ::close(fd);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return low == 0 && number_open() == 0 ? 0 : 1;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(overlapping_holds), cmocka_unit_test(moves_within_a_hold),
      cmocka_unit_test(ends_in_a_forked_child), cmocka_unit_test(many_threads)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
