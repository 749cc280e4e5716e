// Shared memory of a process of another user is not taken, whatever the store says; where a process
// or /proc cannot be seen, the message says so; and a process may go on without its first thread.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/comm/memory/shared_memory.h"

#include "support/rejection.h"

#include "support/check.h"

namespace {

int no_memory_file = 0;  // the error of memfd_create

}  // namespace

// Stands before the system's in this process.
extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  static auto* system =
      reinterpret_cast<int (*)(const char*, unsigned)>(::dlsym(RTLD_NEXT, "memfd_create"));
  if (no_memory_file == 0) return system(name, flags);
  errno = no_memory_file;
  return -1;
}

namespace {

using nxd::SharedMemory;

// Opens what a child of that user has made.
std::string outcome_of(uid_t user) {
  int made[2], done[2];
  assert_int_equal(::pipe(made) | ::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(done[1]);
    if (user != ::geteuid() && ::setuid(user) != 0) ::_exit(1);
    const SharedMemory memory = SharedMemory::create(4096);
    const std::string address = memory.address().encode() + "\n";
    if (::write(made[1], address.data(), address.size()) < 0) ::_exit(1);
    char byte;
    ::_exit(::read(done[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(made[1]);
  ::close(done[0]);
  char address[128] = "";
  assert_true(::read(made[0], address, sizeof address - 1) > 0);
  std::string outcome = "opened";
  try {
    SharedMemory::open(SharedMemory::Address::decode(address));
  } catch (const nxd::Error& e) {
    assert_int_equal(e.status(), NXD_ERROR_IO);
    outcome = e.what();
  }
  ::close(done[1]);
  ::close(made[0]);
  int status = 1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  return outcome;
}

void own_users(void**) { assert_string_equal(outcome_of(::geteuid()).c_str(), "opened"); }

void other_users(void**) {
  if (::geteuid() != 0) {
    std::puts("skip: memory of another user: taking a user's place takes root; run as root");
    skip();
  }
  const std::string outcome = outcome_of(65534);
  if (outcome.find("of another user, 65534") == std::string::npos) fail_msg("%s", outcome.c_str());
}

void expect_failure(const SharedMemory::Address& address, nxd_status_t status, const char* part) {
  try {
    SharedMemory::open(address);
    fail_msg("opened; expected \"%s\"", part);
  } catch (const nxd::Error& e) {
    assert_int_equal(e.status(), status);
    if (!std::strstr(e.what(), part)) fail_msg("expected \"%s\" in: %s", part, e.what());
  }
}

// A process that has ended looks like one of another namespace: the message names both.
void processes_that_cannot_be_seen(void**) {
  const SharedMemory memory = SharedMemory::create(4096);
  SharedMemory::Address address = memory.address();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  assert_int_equal(::waitpid(child, nullptr, 0), child);
  address.pid = child;
  expect_failure(address, NXD_ERROR_PEER_LOST, "need one process namespace");
}

void* wait_for_signals(void*) {
  for (;;) ::pause();
}

// The process's own list of descriptors is that of its first thread.
void processes_without_their_first_thread(void**) {
  int told[2];
  assert_int_equal(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const SharedMemory memory = SharedMemory::create(4096);
    const std::string address = memory.address().encode() + "\n";
    pthread_t other;
    if (::pthread_create(&other, nullptr, wait_for_signals, nullptr) != 0) ::_exit(1);
    if (::write(told[1], address.data(), address.size()) < 0) ::_exit(1);
    ::syscall(SYS_exit, 0);
  }
  char address[128] = "", target[128];
  assert_true(::read(told[0], address, sizeof address - 1) > 0);
  const std::string link = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(told[1]);
  for (int i = 0; i < 60000; ++i) {
    if (::readlink(link.c_str(), target, sizeof target) < 0) break;
    ::usleep(1000);
  }
  SharedMemory::open(SharedMemory::Address::decode(address));
  ::kill(child, SIGKILL);
  assert_int_equal(::waitpid(child, nullptr, 0), child);
  for (const int fd : told) ::close(fd);
}

// A process that may not look into this one is told what it lacks, and what does without.
void processes_that_may_not_be_opened(void**) {
  const SharedMemory memory = SharedMemory::create(4096);
  // Other users may not open what belongs to root in any case.
  assert_int_equal(::prctl(PR_SET_DUMPABLE, 0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(3);
    try {
      SharedMemory::open(memory.address());
    } catch (const nxd::Error& e) {
      const bool said = std::strstr(e.what(),
                                    "Permission denied (it needs the same user and user "
                                    "namespace") != nullptr;
      ::_exit(said && e.status() == NXD_ERROR_IO ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  ::prctl(PR_SET_DUMPABLE, 1);
  assert_int_equal(status, 0);
}

void without_memory_files(void**) {
  no_memory_file = ENOSYS;
  nxd_test::rejection(NXD_ERROR_IO, "Function not implemented (NXD_TRANSPORT=gloo does without it)",
                      [] { SharedMemory::create(4096); });
  no_memory_file = EMFILE;
  nxd_test::rejection(NXD_ERROR_IO, "Too many open files", [] { SharedMemory::create(4096); });
  no_memory_file = 0;
}

// A child whose view of the files has something else at /proc; 77: it may not have such a view.
void without_proc(void**) {
  const SharedMemory memory = SharedMemory::create(4096);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/proc", "tmpfs", 0, nullptr) != 0) {
      ::_exit(77);
    }
    try {
      SharedMemory::open(memory.address());
    } catch (const nxd::Error& e) {
      const bool said = std::strstr(e.what(), "/proc is not mounted here; expected it") != nullptr;
      ::_exit(said && e.status() == NXD_ERROR_IO ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    std::puts(
        "skip: memory without /proc: mounting in a namespace of its own takes root; run as root");
    skip();
  }
  assert_int_equal(status, 0);
}

// A peer takes no memory from under the others, and another file's number is another memory.
void memory_stays_whole(void**) {
  const SharedMemory memory = SharedMemory::create(8192);
  SharedMemory::Address address = memory.address();
  for (const off_t size : {4096, 16384}) {
    assert_int_equal(::ftruncate(address.descriptor, size), -1);
    assert_int_equal(errno, EPERM);
  }
  assert_int_equal(SharedMemory::open(address).size(), 8192);
  ++address.inode;
  nxd_test::rejection(NXD_ERROR_PEER_LOST, "is gone",
                      [&] { static_cast<void>(SharedMemory::open(address)); });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(own_users),
                              cmocka_unit_test(other_users),
                              cmocka_unit_test(processes_that_cannot_be_seen),
                              cmocka_unit_test(processes_without_their_first_thread),
                              cmocka_unit_test(processes_that_may_not_be_opened),
                              cmocka_unit_test(without_memory_files),
                              cmocka_unit_test(without_proc),
                              cmocka_unit_test(memory_stays_whole)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
