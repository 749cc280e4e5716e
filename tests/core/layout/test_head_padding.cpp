// Heads that ranks do not divide, and features that grow as they do.
#include "core/layout/head_padding.h"

#include <cstdint>

#include "support/rejection.h"

#include "support/check.h"

using nxd::HeadPadding;

namespace {

void heads_up_to_a_multiple(void**) {
  const int64_t cases[][3] = {{6, 4, 8}, {8, 4, 8}, {1, 7, 7}, {7, 1, 7}, {9, 8, 16}};
  for (const auto& [heads, degree, padded] : cases) {
    const HeadPadding padding = HeadPadding::make(heads, degree);
    assert_int_equal(padding.padded_heads, padded);
    assert_int_equal(padding.extra(), padded - heads);
  }
}

// Six heads become eight, so that each three features become four: features of half a head do too.
void features_grow_as_heads_do(void**) {
  const HeadPadding padding = HeadPadding::make(6, 4);
  const int64_t cases[][2] = {{0, 0}, {3, 4}, {9, 12}, {6, 8}, {384, 512}};
  for (const auto& [features, grown] : cases) {
    assert_int_equal(padding.padded(features, "q"), grown);
  }
  for (const int64_t features : {1, 2, 4, 8}) {
    nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "q: expected a multiple of 3 features",
                        [&] { padding.padded(features, "q"); });
  }
}

void numbers_that_are_none(void**) {
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "num_heads: expected at least 1, got 0",
                      [] { HeadPadding::make(0, 4); });
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "tp_degree: expected at least 1, got 0",
                      [] { HeadPadding::make(4, 0); });
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "beyond INT64_MAX",
                      [] { HeadPadding::make(INT64_MAX, 4); });
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "too many to grow",
                      [] { HeadPadding::make(6, 4).padded(INT64_MAX / 3 * 3, "q"); });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(heads_up_to_a_multiple),
      cmocka_unit_test(features_grow_as_heads_do),
      cmocka_unit_test(numbers_that_are_none),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
