// Complex numbers on the recorded device, replayed: results have the shapes, dtypes and values of
// the CPU. Compiled programs have none.
#include <ATen/ATen.h>

#include <functional>
#include <tuple>
#include <vector>

#include "engine/stablehlo/device_backend.h"

#include "support/device_compare.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

Tensor numbers(at::Device device) {
  const Tensor parts = at::arange(12.0f).sub(4).view({2, 3, 2}).sin();
  return at::view_as_complex(parts.to(device));
}

void magnitudes_and_deviations_are_real(void**) {
  using D = at::Device;
  struct Case {
    const char* name;
    std::function<Tensor(D)> run;
  };
  const std::vector<Case> cases = {
      {"abs", [](D d) { return at::abs(numbers(d)); }},
      {"abs into a result",
       [](D d) {
         Tensor out = at::zeros({2, 3}).to(d);
         return at::abs_out(out, numbers(d));
       }},
      {"std", [](D d) { return at::std(numbers(d), 1); }},
      {"var", [](D d) { return at::var(numbers(d), 1); }},
      {"var_mean", [](D d) { return std::get<0>(at::var_mean(numbers(d), 1)); }},
      {"the mean beside a deviation",
       [](D d) { return at::view_as_real(std::get<1>(at::std_mean(numbers(d), 1))); }},
  };
  for (const Case& c : cases) {
    const auto recorded = [&] { return c.run(at::Device(at::kXLA, 0)); };
    assert_true(test::equals_cpu(c.name, recorded, c.run(at::kCPU)));
  }
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {cmocka_unit_test(magnitudes_and_deviations_are_real)};
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
