// The cores that a thread may use, also on a machine with more of them than a cpu_set_t holds.
#include <dlfcn.h>
#include <sched.h>
#include <string.h>

#include <cerrno>

#include "core/base/core_count.h"

#include "support/check.h"

namespace {

constexpr int kLarge = 5000;
bool is_large = false;

}  // namespace

// Stands before the system's in this process.
extern "C" int sched_getaffinity(pid_t thread, size_t size, cpu_set_t* cores) noexcept {
  using Function = int(pid_t, size_t, cpu_set_t*);
  static auto* system = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "sched_getaffinity"));
  if (!is_large) return system(thread, size, cores);
  if (size * 8 < kLarge) {
    errno = EINVAL;
    return -1;
  }
  CPU_ZERO_S(size, cores);
  for (size_t core = 3; core < kLarge; ++core) CPU_SET_S(core, size, cores);
  return 0;
}

namespace {

void of_this_machine(void**) {
  cpu_set_t all;
  assert_int_equal(::sched_getaffinity(0, sizeof all, &all), 0);
  assert_int_equal(nxd::usable_cores(), CPU_COUNT(&all));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  }
  assert_int_equal(::sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(nxd::usable_cores(), 1);
  assert_int_equal(::sched_setaffinity(0, sizeof all, &all), 0);
}

void of_a_large_machine(void**) {
  is_large = true;
  assert_int_equal(nxd::usable_cores(), kLarge - 3);
  is_large = false;
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(of_this_machine),
                              cmocka_unit_test(of_a_large_machine)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
