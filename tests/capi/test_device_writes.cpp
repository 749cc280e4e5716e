// Writes that concern the recorded device and others, through the header.
#include <functional>
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

Tensor numbers(const std::vector<double>& values, nxd_device_t device,
               nxd_dtype_t dtype = NXD_DTYPE_F32) {
  return moved(from_doubles(values, {static_cast<int64_t>(values.size())}, dtype), device);
}

nxd_status_t status_of(const char* name, const char* overload,
                       const std::vector<Argument>& arguments) {
  nxd_op_t* call = nullptr;
  NXD_TEST_OK(nxd_op_create(name, overload, &call));
  for (const Argument& argument : arguments) {
    NXD_TEST_OK(argument.set(call, argument.name.c_str()));
  }
  const nxd_status_t status = nxd_op_run(call);
  nxd_op_destroy(call);
  return status;
}

// With the gradient of what is copied, and a dtype and sizes of the host's own.
void test_the_host_takes_values_of_the_device(void**) {
  const Tensor x = numbers({1, 2, 3}, NXD_DEVICE_XLA);
  NXD_TEST_OK(nxd_tensor_set_requires_grad(x.get(), 1));
  const Tensor host = op("zeros", {{"size", std::vector<int64_t>{2, 3}}});
  const Tensor wide = to(host, NXD_DTYPE_F64);
  const Tensor row = op("select", "int", {{"self", wide}, {"dim", 0}, {"index", 1}});
  op("copy_", {{"self", row}, {"src", op("mul", "Scalar", {{"self", x}, {"other", 2.0}})}});
  assert_true((values(wide) == std::vector<double>{0, 0, 0, 2, 4, 6}));
  backward(op("sum", {{"self", op("mul", "Tensor", {{"self", wide}, {"other", wide}})}}));
  assert_true((values(x.grad()) == std::vector<double>{8, 16, 24}));
  const Tensor number = op("select", "int", {{"self", x}, {"dim", 0}, {"index", 2}});
  Tensor constant;
  NXD_TEST_OK(nxd_tensor_detach(number.get(), constant.out()));
  op("fill_", "Tensor", {{"self", host}, {"value", constant}});
  assert_true(values(host) == std::vector<double>(6, 3));
  const Tensor shape = without_values({3}, NXD_DTYPE_F32);
  op("copy_", {{"self", shape}, {"src", x}});
}

// As on other devices of libtorch's: nothing is written.
void test_operands_of_a_write_are_on_its_device(void**) {
  const Tensor x = numbers({1, 2}, NXD_DEVICE_XLA), host = numbers({3, 4}, NXD_DEVICE_CPU);
  const char* const expected = "expected all tensors on device cpu, got one of shape [2] on xla:0";
  NXD_TEST_REFUSED(status_of("add_", "Tensor", {{"self", host}, {"other", x}}),
                   NXD_ERROR_INVALID_ARGUMENT, expected);
  NXD_TEST_REFUSED(status_of("mul", "out", {{"self", x}, {"other", x}, {"out", host}}),
                   NXD_ERROR_INVALID_ARGUMENT, expected);
  assert_true((values(host) == std::vector<double>{3, 4}));
  const Tensor shape = without_values({2}, NXD_DTYPE_F32);
  NXD_TEST_REFUSED(status_of("add_", "Tensor", {{"self", shape}, {"other", x}}),
                   NXD_ERROR_INVALID_ARGUMENT, "expected all tensors on device meta");
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_host_takes_values_of_the_device),
      cmocka_unit_test(test_operands_of_a_write_are_on_its_device),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
