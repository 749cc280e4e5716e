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

nxd_status_t write_lists(const char* name, const char* overload, const std::vector<Tensor>& self,
                         const std::vector<Tensor>& other) {
  nxd_op_t* call = nullptr;
  NXD_TEST_OK(nxd_op_create(name, overload, &call));
  const auto set = [&](const char* argument, const std::vector<Tensor>& tensors) {
    std::vector<nxd_tensor_t*> handles;
    for (const Tensor& tensor : tensors) handles.push_back(tensor.get());
    NXD_TEST_OK(nxd_op_set_tensors(call, argument, handles.data(), handles.size()));
  };
  set("self", self);
  if (!other.empty()) set("other", other);
  const nxd_status_t status = nxd_op_run(call);
  nxd_op_destroy(call);
  return status;
}

// Views too, without an end of the graph.
void test_lists_are_written(void**) {
  std::vector<std::vector<double>> found;
  NXD_TEST_OK(nxd_mark_step(1));
  NXD_TEST_OK(nxd_device_reset_metrics());
  for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
    const Tensor base = numbers({1, 4, 9, 16}, device), other = numbers({2, 3}, device);
    const Tensor head =
        op("slice", "Tensor", {{"self", base}, {"dim", 0}, {"start", 0}, {"end", 2}});
    const Tensor whole = numbers({25, 36}, device);
    NXD_TEST_OK(write_lists("_foreach_sqrt_", nullptr, {head, whole}, {}));
    NXD_TEST_OK(write_lists("_foreach_mul_", "List", {whole, head}, {other, other}));
    for (const Tensor& tensor : {base, whole}) found.push_back(values(tensor));
    NXD_TEST_REFUSED(write_lists("_foreach_add_", "List", {whole, head}, {base, head}),
                     NXD_ERROR_INVALID_ARGUMENT, "");
  }
  assert_true((found[0] == std::vector<double>{2, 6, 9, 16}));
  assert_true((found[1] == std::vector<double>{10, 18}));
  assert_true(found[2] == found[0] && found[3] == found[1]);
  assert_int_equal(metrics().fallbacks, 0);
}

nxd_status_t name_device(const char* name) {
  nxd_op_t* call = nullptr;
  NXD_TEST_OK(nxd_op_create("zeros", nullptr, &call));
  const nxd_status_t status = nxd_op_set_string(call, "device", name);
  nxd_op_destroy(call);
  return status;
}

void test_devices_by_name(void**) {
  for (const char* known : {"cpu", "meta", "xla", "xla:0"}) NXD_TEST_OK(name_device(known));
  NXD_TEST_REFUSED(name_device("xla:1"), NXD_ERROR_INVALID_ARGUMENT, "expected xla or xla:0");
  NXD_TEST_REFUSED(name_device("none"), NXD_ERROR_INVALID_ARGUMENT, "none");
  for (const char* other : {"mkldnn", "cuda", "lazy"}) {
    NXD_TEST_REFUSED(name_device(other), NXD_ERROR_UNSUPPORTED, "expected cpu, meta or xla");
  }
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_host_takes_values_of_the_device),
      cmocka_unit_test(test_operands_of_a_write_are_on_its_device),
      cmocka_unit_test(test_lists_are_written),
      cmocka_unit_test(test_devices_by_name),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
