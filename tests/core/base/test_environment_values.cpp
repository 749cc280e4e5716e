// Values of environment variables that do not fit an int64.
#include <cstdlib>

#include "core/base/environment.h"
#include "support/rejection.h"

#include "support/check.h"

namespace {

uint64_t seed_of(const char* value) {
  ::setenv("NXD_SEED", value, 1);
  return nxd::env::seed();
}

void test_seeds(void**) {
  assert_true(seed_of("") == 0);
  assert_true(seed_of("7") == 7);
  assert_true(seed_of("9223372036854775808") == uint64_t{1} << 63);
  assert_true(seed_of("18446744073709551615") == UINT64_MAX);
  assert_true(seed_of("-1") == UINT64_MAX);
  for (const char* bad : {"18446744073709551616", "-9223372036854775809", "1.0", " 1", "0x1"}) {
    nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, bad, [&] { seed_of(bad); });
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
