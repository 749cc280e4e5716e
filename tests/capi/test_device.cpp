// The recorded device through the header: tensors moved, metrics, texts, rejections.
#include <string>

#include "support/tensor.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

Tensor moved(const Tensor& x, nxd_device_t device) {
  Tensor out;
  NXD_TEST_OK(nxd_tensor_to_device(x.get(), device, out.out()));
  return out;
}

nxd_device_metrics_t metrics() {
  nxd_device_metrics_t m = {};
  m.struct_size = sizeof m;
  NXD_TEST_OK(nxd_device_get_metrics(&m));
  return m;
}

std::string text_by(nxd_status_t (*get)(char*, size_t, size_t*)) {
  size_t needed = 0;
  NXD_TEST_OK(get(nullptr, 0, &needed));
  std::string buffer(needed, '\0');
  NXD_TEST_OK(get(buffer.data(), buffer.size(), &needed));
  buffer.pop_back();
  return buffer;
}

void test_tensors_move_and_are_computed_with(void**) {
  const Tensor x = wave({3, 4}, NXD_DTYPE_F32, 1);
  const Tensor there = moved(x, NXD_DEVICE_XLA);
  nxd_device_t device = NXD_DEVICE_INVALID;
  NXD_TEST_OK(nxd_tensor_get_device(there.get(), &device));
  assert_int_equal(device, NXD_DEVICE_XLA);
  NXD_TEST_OK(nxd_device_reset_metrics());
  const Tensor sum = op("sum", {{"self", op("relu", {{"self", there}})}});
  NXD_TEST_OK(nxd_mark_step(1));
  NXD_TEST_CLOSE("sum", moved(sum, NXD_DEVICE_CPU),
                 op("sum", {{"self", op("relu", {{"self", x}})}}), 1e-6);
  assert_int_equal(metrics().steps, 1);
  assert_int_equal(metrics().executions, 1);
  assert_int_equal(metrics().implicit_syncs, 0);
  assert_true(text_by(nxd_device_get_step_graph).find("aten::relu(f32[3, 4])") !=
              std::string::npos);
  assert_true(text_by(nxd_device_get_report).find("executions 1\n") != std::string::npos);
  // In place, from and to the host.
  const std::vector<float> twos(12, 2.0F);
  std::vector<float> back(12);
  NXD_TEST_OK(nxd_tensor_copy_from_host(there.get(), twos.data(), 48));
  NXD_TEST_OK(nxd_tensor_copy_to_host(there.get(), back.data(), 48));
  assert_true(back == twos);
  Tensor zeros;
  const int64_t shape[] = {2, 2};
  NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_XLA, zeros.out()));
  assert_true(op("sum", {{"self", zeros}}).item() == 0);
  assert_int_equal(metrics().fallbacks, 0);
}

void test_bad_calls(void**) {
  const Tensor x = moved(wave({2}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  Tensor out;
  assert_int_equal(nxd_tensor_to_device(nullptr, NXD_DEVICE_XLA, out.out()),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_tensor_to_device(x.get(), NXD_DEVICE_XLA, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_tensor_to_device(x.get(), 17, out.out()), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_tensor_to_device(x.get(), NXD_DEVICE_NEURON, out.out()),
                   NXD_ERROR_UNSUPPORTED);
  void* data = nullptr;
  assert_int_equal(nxd_tensor_get_data(x.get(), &data), NXD_ERROR_UNSUPPORTED);
  DLManagedTensor* managed = nullptr;
  assert_int_equal(nxd_tensor_to_dlpack(x.get(), &managed), NXD_ERROR_UNSUPPORTED);
  assert_int_equal(nxd_mark_step(2), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_device_get_metrics(nullptr), NXD_ERROR_INVALID_ARGUMENT);
  nxd_device_metrics_t unset = {};
  assert_int_equal(nxd_device_get_metrics(&unset), NXD_ERROR_ABI_MISMATCH);
  size_t needed = 0;
  char small[2];
  assert_int_equal(nxd_device_get_report(small, 2, &needed), NXD_ERROR_INVALID_ARGUMENT);
  assert_true(needed > 2);
  assert_int_equal(nxd_device_get_report(nullptr, 9, &needed), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_device_get_step_graph(nullptr, 0, nullptr), NXD_ERROR_INVALID_ARGUMENT);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors_move_and_are_computed_with),
      cmocka_unit_test(test_bad_calls),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
