// Threads of the library's own run no handler of the program's, but the ones of their own faults:
// memory that the program gave may be protected, for a handler to open it up.
#include "core/base/blocked_signals.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "core/base/start_thread.h"

#include "support/check.h"

namespace {

char* page = nullptr;
size_t page_size = 0;

void open_page(int number, siginfo_t* fault, void*) {
  const bool is_ours = static_cast<char*>(fault->si_addr) == page;
  if (!is_ours || mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    signal(number, SIG_DFL);
  }
}

void faults_reach_their_handler(void**) {
  page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  page = static_cast<char*>(memory);
  struct sigaction action = {}, before;
  action.sa_sigaction = open_page;
  action.sa_flags = SA_SIGINFO;
  assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
  nxd::start_thread("of this test", [] { *static_cast<volatile char*>(page) = 1; }).join();
  sigaction(SIGSEGV, &before, nullptr);
  assert_int_equal(*page, 1);
  munmap(memory, page_size);
}

void others_are_blocked(void**) {
  sigset_t blocked;
  sigemptyset(&blocked);
  nxd::start_thread("of this test", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  }).join();
  for (const int number : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGPROF, SIGUSR1, SIGRTMAX}) {
    assert_int_equal(sigismember(&blocked, number), 1);
  }
}

// The thread that starts them has its signals as before.
void caller_keeps_its_own(void**) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  nxd::start_thread("of this test", [] {}).join();
  pthread_sigmask(SIG_SETMASK, &before, &blocked);
  assert_int_equal(sigismember(&blocked, SIGUSR1), 1);
  assert_int_equal(sigismember(&blocked, SIGUSR2), 0);
  assert_int_equal(sigismember(&blocked, SIGSEGV), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(faults_reach_their_handler),
      cmocka_unit_test(others_are_blocked),
      cmocka_unit_test(caller_keeps_its_own),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
