// Automatic casts on the recorded device: PyTorch/XLA's lists, where tensors on the CPU have those
// of accelerators; a program may use both.
#include <string>
#include <vector>

#include "support/device.h"
#include "support/pjrt.h"
#include "support/tensor.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

Tensor moved(const Tensor& x, nxd_device_t device) {
  Tensor out;
  NXD_TEST_OK(nxd_tensor_to_device(x.get(), device, out.out()));
  return out;
}

class Autocast {
 public:
  Autocast() { NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_BF16, &previous_)); }
  ~Autocast() { NXD_TEST_OK(nxd_set_autocast(previous_, nullptr)); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  nxd_dtype_t previous_ = NXD_DTYPE_INVALID;
};

constexpr nxd_dtype_t kF32 = NXD_DTYPE_F32, kBf16 = NXD_DTYPE_BF16;

// An operator of tensors x, of the one dtype, and y, of the other.
struct Case {
  const char* name;
  const char* overload;
  nxd_dtype_t x, y;
  nxd_dtype_t on_cpu, on_device;  // of the result; on the device arguments are cast to it first
  std::vector<Argument> (*arguments)(const Tensor& x, const Tensor& y);
};

using Arguments = std::vector<Argument>;

Argument pair_of(const char* name, const Tensor& x, const Tensor& y) {
  Argument argument(name, 0);
  argument.set = [first = x.get(), second = y.get()](nxd_op_t* op, const char* arg) {
    nxd_tensor_t* const both[] = {first, second};
    return nxd_op_set_tensors(op, arg, both, 2);
  };
  return argument;
}

Arguments self(const Tensor& x, const Tensor&) { return {{"self", x}}; }
Arguments self_and_other(const Tensor& x, const Tensor& y) { return {{"self", x}, {"other", y}}; }
Arguments self_and_mat2(const Tensor& x, const Tensor& y) { return {{"self", x}, {"mat2", y}}; }
Arguments last_dim(const Tensor& x, const Tensor&) { return {{"self", x}, {"dim", -1}}; }
Arguments squared(const Tensor& x, const Tensor&) { return {{"self", x}, {"exponent", 2.0}}; }
Arguments normalized(const Tensor& x, const Tensor&) {
  return {{"input", x}, {"normalized_shape", std::vector<int64_t>{4}}};
}
Arguments target(const Tensor& x, const Tensor& y) { return {{"self", x}, {"target", y}}; }
Arguments both(const Tensor& x, const Tensor& y) { return {pair_of("tensors", x, y)}; }
Arguments added(const Tensor& x, const Tensor& y) {
  return {{"self", x}, {"tensor1", x}, {"tensor2", y}};
}

const Case kCases[] = {
    // in both devices' lists
    {"matmul", "", kF32, kF32, kBf16, kBf16, self_and_other},
    {"mm", "", kF32, kBf16, kBf16, kBf16, self_and_mat2},
    {"softmax", "int", kBf16, kBf16, kF32, kF32, last_dim},
    {"log_softmax", "int", kBf16, kBf16, kF32, kF32, last_dim},
    {"pow", "Tensor_Scalar", kBf16, kBf16, kF32, kF32, squared},
    {"prod", "", kBf16, kBf16, kF32, kF32, self},
    {"mse_loss", "", kBf16, kBf16, kF32, kF32, target},
    {"cat", "", kF32, kBf16, kF32, kF32, both},
    {"stack", "", kBf16, kBf16, kBf16, kBf16, both},
    // in XLA's alone
    {"relu", "", kF32, kF32, kF32, kBf16, self},
    // in those of accelerators alone
    {"exp", "", kBf16, kBf16, kF32, kBf16, self},
    {"log1p", "", kBf16, kBf16, kF32, kBf16, self},
    {"sum", "", kBf16, kBf16, kF32, kBf16, self},
    {"layer_norm", "", kBf16, kBf16, kF32, kBf16, normalized},
    {"addcmul", "", kBf16, kBf16, kBf16, kBf16, added},
    // in none
    {"tanh", "", kBf16, kBf16, kBf16, kBf16, self},
    {"add", "Tensor", kF32, kBf16, kF32, kF32, self_and_other},
};

Tensor run(const Case& c, const Tensor& x, const Tensor& y) {
  return op(c.name, *c.overload ? c.overload : nullptr, c.arguments(x, y));
}

void test_lists(void**) {
  const Tensor first = op("abs", {{"self", wave({4, 4}, kF32, 1)}}), second = wave({4, 4}, kF32, 2);
  for (const Case& c : kCases) {
    const Tensor x = to(first, c.x), y = to(second, c.y);
    const Tensor x_there = moved(x, NXD_DEVICE_XLA), y_there = moved(y, NXD_DEVICE_XLA);
    // In a list, the result is that of explicit casts.
    const Tensor want = run(c, to(x, c.on_device), to(y, c.on_device));
    const Autocast on;
    const Tensor here = run(c, x, y), there = run(c, x_there, y_there);
    if (here.dtype() != c.on_cpu || there.dtype() != c.on_device) {
      fail_msg("%s: dtypes %d on the CPU and %d on the device, expected %d and %d", c.name,
               here.dtype(), there.dtype(), c.on_cpu, c.on_device);
    }
    const double tolerance = c.on_device == kBf16 ? 1e-2 : 1e-5;
    NXD_TEST_CLOSE(c.name, moved(there, NXD_DEVICE_CPU), want, tolerance);
  }
}

// A pass of a setting that is off is as it is everywhere.
void test_off(void**) {
  const Tensor x = moved(wave({4, 4}, kF32, 1), NXD_DEVICE_XLA);
  assert_int_equal(op("relu", {{"self", x}}).dtype(), kF32);
  assert_int_equal(op("matmul", {{"self", x}, {"other", x}}).dtype(), kF32);
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lists),
      cmocka_unit_test(test_off),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
