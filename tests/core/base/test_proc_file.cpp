// Files below /proc about processes whose first thread has ended while another goes on.
#include "core/base/proc_file.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "support/check.h"

namespace {

using nxd::find_in_proc;
using nxd::own_proc;
using nxd::read_proc;

// A child whose first thread ends at once; the other one runs the function.
pid_t child_without_first_thread(void* (*other)(void*), void* argument) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, other, argument) != 0) ::_exit(2);
  ::syscall(SYS_exit, 0);
  ::_exit(2);
}

bool wait_for_zombie(pid_t pid) {
  for (int i = 0; i < 60000; ++i) {
    const std::string status = read_proc("/proc/" + std::to_string(pid) + "/status").value_or("");
    if (status.find("State:\tZ") != std::string::npos) return true;
    ::usleep(1000);
  }
  return false;
}

bool is_link(const std::string& path) {
  char target[128];
  return ::readlink(path.c_str(), target, sizeof target) > 0;
}

void* look_at_itself(void* told) {
  const bool seen = wait_for_zombie(::getpid()) && is_link(own_proc("ns/net")) &&
                    is_link(own_proc("fd/" + std::to_string(*static_cast<int*>(told)))) &&
                    !read_proc(own_proc("maps")).value_or("").empty();
  ::_exit(seen ? 0 : 1);
}

void own_files(void**) {
  int told[2];
  assert_int_equal(::pipe(told), 0);
  const pid_t child = child_without_first_thread(look_at_itself, &told[1]);
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (const int fd : told) ::close(fd);
}

void own_paths_leave_errno(void**) {
  errno = EXDEV;
  assert_true(own_proc("fd").starts_with("/proc/"));
  assert_int_equal(errno, EXDEV);
}

void* wait_for_signals(void*) {
  for (;;) ::pause();
}

void files_of_another(void**) {
  int told[2];
  assert_int_equal(::pipe(told), 0);
  const pid_t child = child_without_first_thread(wait_for_signals, nullptr);
  assert_true(wait_for_zombie(child));
  int offered = 0;
  const auto has_descriptor = [&](const std::string& directory) {
    ++offered;
    return is_link(directory + "/fd/" + std::to_string(told[1]));
  };
  assert_true(find_in_proc(child, has_descriptor));
  assert_true(offered > 1);
  offered = 0;
  assert_false(find_in_proc(child, [&](const std::string&) { return ++offered < 0; }));
  assert_true(offered >= 3);  // the process, and its two threads beside those of a sanitizer
  ::kill(child, SIGKILL);
  assert_int_equal(::waitpid(child, nullptr, 0), child);
  for (const int fd : told) ::close(fd);
}

// The list of threads has a descriptor itself, which is not to be found.
void descriptors_of_this_process(void**) {
  const int unused = ::dup(0);
  ::close(unused);
  assert_false(find_in_proc(::getpid(), [&](const std::string& directory) {
    return is_link(directory + "/fd/" + std::to_string(unused));
  }));
}

void files_of_none(void**) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  assert_int_equal(::waitpid(child, nullptr, 0), child);
  int offered = 0;
  assert_false(find_in_proc(child, [&](const std::string&) { return ++offered < 0; }));
  assert_int_equal(offered, 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(own_files), cmocka_unit_test(own_paths_leave_errno),
                              cmocka_unit_test(files_of_another),
                              cmocka_unit_test(descriptors_of_this_process),
                              cmocka_unit_test(files_of_none)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
