// Lines of the log about graphs: the first difference of one more, and the end of one that grows
// without the end of a step. All of each line is checked.
#include <ATen/ATen.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "engine/device/device_metrics.h"
#include "engine/device/recording.h"
#include "engine/stablehlo/device_backend.h"

#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

Tensor numbers(const std::vector<int64_t>& sizes) {
  return at::ones(sizes).to(at::Device(at::kXLA, 0));
}

std::vector<std::string> warnings;

std::vector<std::string> warnings_of(const std::function<void()>& run) {
  warnings.clear();
  set_log_callback(
      [](nxd_log_level_t level, const char* line, void*) {
        if (level == NXD_LOG_WARN) warnings.push_back(line);
      },
      nullptr, nullptr);
  run();
  set_log_callback(nullptr, nullptr, nullptr);
  return warnings;
}

// From the third graph of a thread's steps on the first node that differs is named, as it is and as
// it was.
void test_another_graph_is_named_by_its_first_difference(void**) {
  std::vector<std::string> warned;
  std::thread other([&] {
    const auto step_of = [](int64_t rows, bool with_exp) {
      const Tensor x = numbers({rows, 3});
      const Tensor y = at::relu(x * 2), last = with_exp ? at::exp(y) : at::tanh(y);
      Recording::current()->mark_step(true);
    };
    warned = warnings_of([&] {
      step_of(61, false);
      step_of(62, false);
    });
    assert_true(warned.empty());
    warned = warnings_of([&] {
      step_of(63, false);
      step_of(63, true);
    });
  });
  other.join();
  assert_int_equal(warned.size(), 2);
  const auto told = [](int graph, const std::string& difference) {
    return "a step was compiled again, as graph " + std::to_string(graph) +
           " of this thread's steps; the first difference to the step before: " + difference;
  };
  assert_string_equal(warned[0].c_str(),
                      told(3,
                           "node 0 is %1 f32[63, 3] = aten::mul.Scalar(f32[63, 3], scalar) of "
                           "%0, was %1 f32[62, 3] = aten::mul.Scalar(f32[62, 3], scalar) of %0")
                          .c_str());
  assert_string_equal(warned[1].c_str(),
                      told(4,
                           "node 2 is %3 f32[63, 3] = aten::exp(f32[63, 3]) of %2, was %3 "
                           "f32[63, 3] = aten::tanh(f32[63, 3]) of %2")
                          .c_str());
}

// The nodes of two graphs are the same, and one of them keeps a result more.
void test_a_result_that_is_kept_is_named(void**) {
  std::vector<std::string> warned;
  std::thread other([&] {
    const auto step_of = [](bool keeps) {
      const Tensor x = numbers({64, 3});
      Tensor y = at::relu(x * 2);
      const Tensor last = at::exp(y);
      if (!keeps) y = Tensor();
      Recording::current()->mark_step(true);
    };
    warned = warnings_of([&] {
      for (const int64_t rows : {65, 66}) {
        const Tensor x = at::tanh(numbers({rows, 3}));
        Recording::current()->mark_step(true);
      }
      for (const bool keeps : {false, true, false}) step_of(keeps);
    });
  });
  other.join();
  assert_int_equal(warned.size(), 2);
  const std::string place = "end of the step: %2 f32[64, 3] = aten::relu(f32[64, 3]) of %1";
  assert_non_null(strstr(warned[1].c_str(), (": %2 is held at the " + place).c_str()));
}

// A step that never ends is cut, each time that it has grown so long.
void test_long_graphs_are_cut(void**) {
  assert_int_equal(setenv("NXD_MAX_GRAPH_NODES", "10", 1), 0);
  device_metrics::reset();
  Tensor x;
  const std::vector<std::string> warned = warnings_of([&] {
    std::thread other([&] {
      x = numbers({3});
      for (int i = 0; i < 25; ++i) x = x + 1;
    });
    other.join();
  });
  assert_int_equal(unsetenv("NXD_MAX_GRAPH_NODES"), 0);
  assert_int_equal(warned.size(), 1);
  assert_string_equal(warned[0].c_str(),
                      "device xla: 10 operators were recorded without the end of a step: they run "
                      "as a graph of their own (NXD_MAX_GRAPH_NODES); call nxd_mark_step at the "
                      "end of each step");
  assert_int_equal(device_metrics::counts().executions, 2);
  assert_true(device_metrics::report().find("implicit_sync nxd::graph_limit 2\n") !=
              std::string::npos);
  assert_true(at::allclose(x.to(at::kCPU), at::full({3}, 26.0)));
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_another_graph_is_named_by_its_first_difference),
      cmocka_unit_test(test_a_result_that_is_kept_is_named),
      cmocka_unit_test(test_long_graphs_are_cut),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
