#include "core/base/error.h"
#include "core/kernel_support.h"
#include "core/kernels/attention.h"

using namespace nxd;
using namespace nxd::kernels;

namespace {

void bad_arguments_are_refused(void**) {
  const auto refused = [](nxd_dtype_t dtype, const AttentionShape& shape) {
    try {
      attention_forward(dtype, shape, {}, {}, {}, {}, nullptr);
    } catch (const Error& error) {
      return error.status() == NXD_ERROR_INVALID_ARGUMENT;
    }
    return false;
  };
  const AttentionShape good{0, 1, 1, 2, 1, 8, 1, false, nullptr};
  attention_forward(NXD_DTYPE_F32, good, {}, {}, {}, {}, nullptr);
  assert_true(refused(NXD_DTYPE_F64, good));
  AttentionShape bad = good;
  bad.query_heads = 3;
  bad.kv_heads = 2;
  assert_true(refused(NXD_DTYPE_F32, bad));
  bad = good;
  bad.head_dim = 0;
  assert_true(refused(NXD_DTYPE_F32, bad));
  bad = good;
  bad.window = 3;  // without causal
  assert_true(refused(NXD_DTYPE_F32, bad));
  bad.causal = true;
  bad.window = -1;
  assert_true(refused(NXD_DTYPE_F32, bad));
  bad = good;
  bad.key_length = -1;
  assert_true(refused(NXD_DTYPE_F32, bad));
  for (const double keep : {0.0, -1.0, 1.5, double{NAN}}) {
    bad = good;
    bad.dropout = {RandomSite(1, "weights"), keep, 2, 0};
    assert_true(refused(NXD_DTYPE_F32, bad));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(bad_arguments_are_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
