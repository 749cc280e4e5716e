// Shared memory of a process of another user is not taken, whatever the store says.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/comm/memory/shared_memory.h"

#include "support/check.h"

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
    std::puts("SKIPPED: taking another user's place takes root");
    skip();
  }
  const std::string outcome = outcome_of(65534);
  if (outcome.find("of another user, 65534") == std::string::npos) fail_msg("%s", outcome.c_str());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(own_users), cmocka_unit_test(other_users)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
