// The 1-norm: of sizes that blocks and sums side by side do not divide, and of nothing.
#include "core/kernels/abs_sum.h"

#include <vector>

#include "support/check.h"

namespace {

template <class T>
void check(nxd_dtype_t dtype) {
  for (const int64_t n : {0, 1, 7, 8, 9, (1 << 15) - 1, 1 << 15, (1 << 15) + 1, 3 << 15, 100001}) {
    std::vector<T> values;
    double expected = 0;
    for (int64_t i = 0; i < n; ++i) {
      values.push_back(static_cast<T>(i % 2 == 0 ? i % 13 + 1 : -(i % 17) - 1));
      expected += static_cast<double>(i % 2 == 0 ? i % 13 + 1 : i % 17 + 1);
    }
    assert_true(nxd::kernels::abs_sum(dtype, n, values.data()) == expected);
  }
}

void sums(void**) {
  check<float>(NXD_DTYPE_F32);
  check<double>(NXD_DTYPE_F64);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(sums)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
