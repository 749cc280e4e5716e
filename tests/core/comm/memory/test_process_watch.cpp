// Processes that end are seen by their descriptors, and by /proc where the system has none of
// these, as in some sandboxes and under valgrind.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "core/comm/memory/process_watch.h"

#include "support/rejection.h"

#include "support/check.h"

namespace {

int no_descriptor = 0;  // the error of pidfd_open

}  // namespace

// Stands before the system's in this process.
extern "C" long syscall(long number, ...) noexcept {
  static auto* system = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_pidfd_open && no_descriptor != 0) {
    errno = no_descriptor;
    return -1;
  }
  return system(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

namespace {

using nxd::ProcessId;
using nxd::ProcessWatch;

void* wait_for_signals(void*) {
  for (;;) ::pause();
}

// A child that lives until it is killed.
class Child {
 public:
  // Its first thread may end before the others, which makes it a zombie that lives.
  explicit Child(bool first_thread_ends = false) {
    int told[2];
    assert_int_equal(::pipe(told), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      pthread_t other;
      if (::pthread_create(&other, nullptr, wait_for_signals, nullptr) != 0) ::_exit(1);
      const ProcessId own = ProcessId::own();
      if (::write(told[1], &own, sizeof own) != sizeof own) ::_exit(1);
      if (first_thread_ends) ::syscall(SYS_exit, 0);
      wait_for_signals(nullptr);
    }
    assert_int_equal(::read(told[0], &id_, sizeof id_), sizeof id_);
    for (const int fd : told) ::close(fd);
    // The zombie's state follows its last words.
    if (first_thread_ends) ::usleep(50000);
  }
  ~Child() {
    kill();
    reap();
  }
  const ProcessId& id() const { return id_; }
  // Leaves a zombie.
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    siginfo_t ended;
    ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT);
  }
  void reap() {
    if (pid_ != 0) ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  ProcessId id_;
};

void expect_ends_seen() {
  ProcessWatch watch;
  Child zombie, reaped, leader(true), earlier;
  watch.add(1, zombie.id());
  watch.add(2, reaped.id());
  watch.add(3, leader.id());
  // The number of a process that has ended is another's now.
  watch.add(4, ProcessId{earlier.id().pid, earlier.id().start_time - 1});
  for (const int rank : {1, 2, 3}) assert_false(watch.has_ended(rank));
  assert_true(watch.has_ended(4));
  assert_false(watch.has_ended(5));
  zombie.kill();
  reaped.kill();
  reaped.reap();
  assert_true(watch.has_ended(1));
  assert_true(watch.has_ended(2));
  assert_false(watch.has_ended(3));
  leader.kill();
  assert_true(watch.has_ended(3));
  // One that had ended before it was watched.
  watch.add(6, reaped.id());
  assert_true(watch.has_ended(6));
}

void by_descriptors(void**) { expect_ends_seen(); }

void without_descriptors(void**) {
  for (const int error : {ENOSYS, EPERM}) {
    no_descriptor = error;
    expect_ends_seen();
  }
  no_descriptor = 0;
}

// A lack of descriptors goes by.
void short_of_descriptors(void**) {
  ProcessWatch watch;
  const Child child;
  no_descriptor = EMFILE;
  nxd_test::rejection(NXD_ERROR_IO, "Too many open files", [&] { watch.add(1, child.id()); });
  no_descriptor = 0;
  watch.add(1, child.id());
  assert_false(watch.has_ended(1));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(by_descriptors),
                              cmocka_unit_test(without_descriptors),
                              cmocka_unit_test(short_of_descriptors)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
