// Trials of operators on the CPU, which find dtypes and shapes for the recorded device.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <memory>
#include <tuple>
#include <vector>

#include "engine/device/dtype_trial.h"
#include "engine/device/shape_trial.h"
#include "engine/stablehlo/device_backend.h"

#include "support/check.h"

namespace {

using at::Tensor;
using namespace nxd;
using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

constexpr size_t kHolders = 3;

// The results that trials are given, which may be gone.
std::vector<Weak>& given() {
  static auto* const all = new std::vector<Weak>();  // not freed where a count was wrong
  return *all;
}

std::tuple<Tensor&, Tensor&> two_results(const Tensor& self, Tensor& first, Tensor& second) {
  for (const Tensor& result : {first, second}) {
    for (size_t i = 0; i < kHolders; ++i) given().emplace_back(result.getIntrusivePtr());
  }
  first.copy_(self);
  second.copy_(self);
  return {first, second};
}

c10::OperatorHandle operator_with_two_results() {
  static auto* const library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::DEF, "nxd_test_trials",
                                                 c10::nullopt, __FILE__, __LINE__);
    made->def(
        "two.out(Tensor self, *, Tensor(a!) first, Tensor(b!) second) -> (Tensor(a!), Tensor(b!))");
    made->impl("two.out", c10::DispatchKey::CPU, TORCH_FN(two_results));
    return made.release();
  }();
  static_cast<void>(library);
  return c10::Dispatcher::singleton().findSchemaOrThrow("nxd_test_trials::two", "out");
}

// A tensor that is let go of a second time takes one of its weak holders with it.
void check_died_once() {
  assert_true(!given().empty());
  for (const Weak& result : given()) {
    assert_int_equal(result.use_count(), 0);
    assert_int_equal(result.weak_use_count(), kHolders);
  }
  given().clear();
}

torch::jit::Stack arguments_without_data() {
  const Tensor x = at::empty({2, 3}, at::TensorOptions().device(at::kMeta));
  return {x, at::empty_like(x), at::empty_like(x)};
}

void test_several_given_results_live_as_long_as_the_call(void**) {
  const c10::OperatorHandle op = operator_with_two_results();
  check_dtypes(op, arguments_without_data());
  check_died_once();
  torch::jit::Stack stack = arguments_without_data();
  assert_true(give_shapes_of_trial(op, stack));
  check_died_once();
  assert_int_equal(stack.size(), 2);
  assert_true(stack[1].toTensor().sizes() == at::IntArrayRef({2, 3}));
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_several_given_results_live_as_long_as_the_call),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
