// Values of environment variables: numbers that do not fit an int64, and flags.
#include <cstdlib>
#include <string>

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

void test_flags(void**) {
  const struct {
    const char* name;
    bool (*read)();
  } flags[] = {{"NXD_PLAIN_KERNELS", nxd::env::plain_kernels},
               {"NXD_OPEN_STORE", nxd::env::open_store},
               {"NXD_PJRT_FAST_COMPILE", nxd::env::pjrt_fast_compile},
               {"NXD_ATEN_POOL", [] { return nxd::env::aten_pool().value_or(false); }}};
  for (const auto& flag : flags) {
    const auto value_of = [&](const char* value) {
      ::setenv(flag.name, value, 1);
      return flag.read();
    };
    assert_true(value_of("1"));
    assert_false(value_of("0"));
    assert_false(value_of(""));
    for (const char* bad : {"2", "-1", "true", "1 "}) {
      const std::string says = std::string(flag.name) + ": expected 0 or 1, got \"" + bad + "\"";
      nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, says.c_str(), [&] { value_of(bad); });
    }
    ::unsetenv(flag.name);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_seeds), cmocka_unit_test(test_flags)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
