// The process that starts a job's others holds nothing of the program's open.
#include "core/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/base/blocked_signals.h"

#include "support/check.h"

using nxd::Fd;
using nxd::Supervisor;

namespace {

std::pair<Fd, Fd> make_pipe() {
  int ends[2];
  assert_int_equal(::pipe2(ends, O_CLOEXEC), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// A pipe of the program ends for those who wait for that, though a job goes on: the end
// that writes has a place of its own before the job begins.
void ends_at_once(const std::function<Fd(Fd write_end)>& place) {
  const nxd::BlockedSignals blocked;
  auto [read_end, write_end] = make_pipe();
  Fd placed = place(std::move(write_end));
  Supervisor job({{"sleep", {"sleep", "1000"}, {}}});
  placed.reset();
  pollfd waits{read_end.get(), POLLIN, 0};
  const int ended = ::poll(&waits, 1, 30000);
  char byte;
  const bool is_end = ended == 1 && ::read(read_end.get(), &byte, 1) == 0;
  ::kill(job.pids()[0], SIGKILL);
  while (!job.is_gone() && !job.next_end()) job.await_end(-1);
  assert_true(is_end);
}

void pipes_end(void**) {
  ends_at_once([](Fd write_end) { return write_end; });
  ends_at_once(
      [](const Fd& write_end) { return Fd(::fcntl(write_end.get(), F_DUPFD_CLOEXEC, 500)); });
}

// Between the supervisor's own two, for whose pipes there are two numbers each below and above.
void pipes_end_between(void**) {
  std::vector<Fd> taken;
  ends_at_once([&](Fd write_end) {
    size_t in_row = 0;
    while (in_row < 5) {
      const int before = taken.empty() ? -1 : taken.back().get();
      taken.emplace_back(::fcntl(write_end.get(), F_DUPFD_CLOEXEC, 3));
      in_row = taken.back().get() == before + 1 ? in_row + 1 : 1;
    }
    Fd middle = std::move(taken[taken.size() - 3]);
    taken.resize(taken.size() - 5);
    taken.push_back(std::move(write_end));
    const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (const Fd& fd : taken) ::dup3(nothing.get(), fd.get(), O_CLOEXEC);
    return middle;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(pipes_end), cmocka_unit_test(pipes_end_between)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
