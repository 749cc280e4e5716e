// Operators with a lowering on NaN, infinities, integers and booleans: each gives what ATen gives
// on the CPU, by whichever backend NXD_XLA_BACKEND names.
#include <ATen/ATen.h>

#include <cmath>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "engine/device/device_tensor.h"
#include "engine/device/replay_plan.h"
#include "engine/stablehlo/client_lease.h"
#include "engine/tensor/dtype_map.h"

#include "support/device_compare.h"
#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

struct Arguments {
  explicit Arguments(at::Device device) {
    const float inf = INFINITY, nan = NAN;
    specials = at::tensor({1.0f, nan, 3.0f, -2.0f, inf, 7.0f, nan, -inf}).view({2, 4}).to(device);
    turned = specials.flip({0, 1});
    dividends = at::tensor({1.0f, 5.5f, -1.0f, 7.0f, 0.3f, -0.3f, 6.0f, 0.0f}).to(device);
    divisors = at::tensor({0.1f, 0.5f, 0.1f, -0.7f, 0.1f, 0.1f, 0.0f, 2.0f}).to(device);
    whole = at::tensor({1, -3, 0, 5}, at::kLong).to(device);
    bytes = at::tensor({1, 255, 0, 5}, at::kByte).to(device);
    bools = at::tensor({1, 0, 0, 1}, at::kLong).to(at::kBool).to(device);
    classes = at::tensor({3, 0}, at::kByte).to(device);
  }

  Tensor specials, turned, dividends, divisors, whole, bytes, bools, classes;
};

struct Case {
  const char* text;
  std::function<Tensor(const Arguments&)> run;
};

#define CASE(...)                                                          \
  {                                                                        \
#__VA_ARGS__, [](const Arguments& t) -> Tensor { return __VA_ARGS__; } \
  }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      CASE(t.specials.max()),
      CASE(t.specials.min()),
      CASE(t.specials.amax({0})),
      CASE(t.specials.amin({1})),
      CASE(std::get<0>(t.specials.max(0))),
      CASE(std::get<1>(t.specials.min(1))),
      CASE(t.specials.argmax(0)),
      CASE(at::maximum(t.specials, t.turned)),
      CASE(at::minimum(t.turned, t.specials)),
      CASE(at::clamp_min(t.specials, t.turned)),
      CASE(at::clamp_max(t.specials, t.turned)),
      CASE(at::clamp(t.specials, -1, 1)),
      CASE(at::relu(t.specials)),
      CASE(at::linalg_vector_norm(t.specials, INFINITY)),
      CASE(t.specials.select(1, 0).norm(INFINITY)),
      CASE(at::sign(t.specials)),
      CASE(at::sign(t.whole)),
      CASE(at::sign(t.bytes)),
      CASE(at::sign(t.bools)),
      CASE(at::abs(t.bytes)),
      CASE(at::abs(t.whole)),
      CASE(at::floor(t.whole)),
      CASE(at::ceil(t.bytes)),
      CASE(at::round(t.whole)),
      CASE(t.bools < 2),
      CASE(t.bools == 2),
      CASE(t.bools >= -1),
      CASE(t.bools == true),
      CASE(t.whole == true),
      CASE(at::bitwise_xor(t.bools, true)),
      CASE(at::masked_fill(t.bools, t.bools, false)),
      CASE(at::div(t.dividends, t.divisors, "floor")),
      CASE(at::div(t.dividends, 0.1, "floor")),
      CASE(at::signbit(at::div(at::zeros_like(t.dividends), t.dividends, "floor"))),
      CASE(at::signbit(at::div(t.divisors, t.specials.view({-1}), "floor"))),
      CASE(t.specials * t.specials.gt(0)),
      CASE(t.specials.gt(0).to(at::kFloat) * t.turned),
      CASE(t.bools * NAN),
      CASE((t.dividends * 100).to(at::kByte)),
      CASE((t.dividends * 100).to(at::kChar)),
      CASE((t.dividends * 1e4).to(at::kShort)),
      CASE(at::floor_divide(t.whole, -2)),
      CASE(at::floor_divide(t.bytes, 2)),
      CASE(at::floor_divide(t.dividends, t.divisors)),
      CASE(at::pow(t.specials, NAN)),
      CASE(at::pow(t.specials, 0)),
      CASE(t.specials.slice(1, 0, 0).norm(INFINITY)),
      CASE(at::remainder(t.whole, -2)),
      CASE(at::lerp(t.dividends * 1e8, t.divisors, 1.0)),
      CASE(at::lerp(t.dividends * 1e8, t.divisors, at::ones_like(t.divisors))),
      CASE(at::lerp(t.specials, t.turned, 0.75)),
      CASE(at::lerp(t.specials, t.turned, 0.25)),
      CASE(t.whole[0].sum(at::IntArrayRef{0})),
      CASE(t.dividends[1].mean(at::IntArrayRef{-1}, true)),
      CASE(t.specials[0][1].amax({0})),
      CASE(at::logsumexp(t.dividends[2], {0})),
      CASE(t.bools[0].any(0)),
      CASE(at::logsumexp(t.whole, {0})),
      CASE(at::logsumexp(t.bools, {0}, true)),
      CASE(at::logsumexp(t.bytes, {0})),
      CASE(at::threshold_backward(t.turned, t.specials, 0)),
      CASE(at::hardsigmoid_backward(t.turned, t.specials)),
      CASE(at::nll_loss(t.dividends.view({2, 4}), t.classes)),
      CASE(at::nll_loss_backward(t.dividends[1], t.dividends.view({2, 4}), t.classes, {},
                                 at::Reduction::Mean, -100, t.divisors[7])),
  };
  return all;
}

void test_operators_equal_those_on_the_cpu(void**) {
  const Arguments host(at::kCPU), there(to_device(NXD_DEVICE_XLA));
  bool all_equal = true;
  for (const Case& c : cases()) {
    all_equal = test::equals_cpu(
                    c.text, [&] { return c.run(there); }, c.run(host)) &&
                all_equal;
  }
  assert_true(all_equal);
}

// Integers have none, as on the CPU. Neuron's plug-in has no way to tell.
void test_remainders_by_zero_fail(void**) {
  if (has_graph_compiler() && pjrt_client().target().is_neuron()) return;
  const Arguments there(to_device(NXD_DEVICE_XLA));
  const Tensor left = at::remainder(there.whole, there.whole);
  std::string message;
  try {
    left.to(at::kCPU);
  } catch (const std::exception& error) {
    message = error.what();
  }
  assert_true(message.find("ZeroDivisionError") != std::string::npos);
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operators_equal_those_on_the_cpu),
      cmocka_unit_test(test_remainders_by_zero_fail),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
