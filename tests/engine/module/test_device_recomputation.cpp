// Recomputed modules on the recorded device, whose forward draws random bits by ATen's operators:
// these are drawn when a graph runs, and once more with the same bits.
#include <ATen/ATen.h>

#include <string>
#include <tuple>
#include <vector>

#include "capi/engine_handles.h"
#include "engine/device/device_metrics.h"
#include "engine/stablehlo/device_backend.h"
#include "support/pjrt.h"
#include "support/ranks.h"

#include "support/check.h"

namespace {

const at::Device kXla(at::kXLA, 0);

using Drop = at::Tensor (*)(const at::Tensor& x, double p);

// Recorded by every release of libtorch.
at::Tensor native(const at::Tensor& x, double p) {
  return std::get<0>(at::native_dropout(x, p, true));
}

// Releases before 2.0 draw by an operator that writes to its argument, which runs on the CPU at
// once.
at::Tensor composed(const at::Tensor& x, double p) { return at::dropout(x, p, true); }

// Two dropouts, so that the second begins where the first one ends; nothing else.
struct Drops {
  Drop first = native, second = native;
};

nxd_status_t drop_twice(nxd_module_t*, nxd_tensor_t* const* inputs, size_t, nxd_tensor_t** outputs,
                        size_t, void* user_data) {
  const auto& drops = *static_cast<Drops*>(user_data);
  const at::Tensor once = drops.first(inputs[0]->value, 0.5);
  outputs[0] = new nxd_tensor{drops.second(once, 0.25)};
  return NXD_OK;
}

struct Passes {
  std::vector<at::Tensor> outputs, gradients;
  at::Tensor drawn_later;
};

struct Setting {
  Drops drops{};
  bool recomputed = true;
  bool step_between = false;  // the forward passes are a graph of their own
  bool nested = false;        // in a module that is recomputed too
};

// Two calls of ones; each gradient of a sum is then what its output is.
Passes run(nxd_context_t* ctx, Setting setting) {
  nxd_module_t *inner = nullptr, *module = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "DropTwice", drop_twice, &setting.drops, nullptr, &inner));
  NXD_TEST_OK(nxd_module_create_sequential(ctx, &inner, 1, &module));
  const char* const names[] = {"DropTwice", "Sequential"};
  if (setting.recomputed) {
    NXD_TEST_OK(nxd_apply_checkpoint(module, names, setting.nested ? 2 : 1, 1));
  }
  at::manual_seed(5);
  Passes passes;
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 2; ++i) {
    nxd_tensor x{at::ones({8, 16}).to(kXla).set_requires_grad(true)};
    nxd_tensor_t *given = &x, *out = nullptr;
    NXD_TEST_OK(nxd_module_forward(module, &given, 1, &out, 1));
    inputs.push_back(x.value);
    passes.outputs.push_back(out->value);
    nxd_tensor_destroy(out);
  }
  if (setting.step_between) NXD_TEST_OK(nxd_mark_step(1));
  nxd_tensor loss{passes.outputs[0].sum() + passes.outputs[1].sum()};
  nxd_tensor_t* root = &loss;
  NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
  passes.drawn_later = at::rand({4}, at::TensorOptions(kXla));
  NXD_TEST_OK(nxd_mark_step(1));
  for (at::Tensor& output : passes.outputs) output = output.detach().to(at::kCPU);
  for (const at::Tensor& x : inputs) passes.gradients.push_back(x.grad().to(at::kCPU));
  passes.drawn_later = passes.drawn_later.to(at::kCPU);
  nxd_module_destroy(module);
  return passes;
}

void test_the_same_bits_are_dropped(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const Drops& drops : {Drops{native, native}, Drops{composed, composed},
                                   Drops{native, composed}, Drops{composed, native}}) {
          for (const bool step_between : {false, true}) {
            const Passes want = run(ctx, {drops, false, step_between});
            for (const bool nested : {false, true}) {
              const Passes got = run(ctx, {drops, true, step_between, nested});
              for (size_t i = 0; i < 2; ++i) {
                NXD_TEST_CHECK(at::equal(got.outputs[i], want.outputs[i]));
                NXD_TEST_CHECK(at::equal(got.gradients[i], got.outputs[i]));
              }
              NXD_TEST_CHECK(!at::equal(got.outputs[0], got.outputs[1]));
              NXD_TEST_CHECK(got.outputs[0].sum().item<double>() > 0);
              // Later calls draw the bits that they draw without.
              NXD_TEST_CHECK(at::equal(got.drawn_later, want.drawn_later));
            }
          }
        }
      },
      nullptr);
}

// No part of the graph, and so no call of a compiled one's, unless bits are drawn.
void test_a_forward_without_random_bits_keeps_no_state(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_module_t* module = nullptr;
        const auto doubled = [](nxd_module_t*, nxd_tensor_t* const* inputs, size_t,
                                nxd_tensor_t** outputs, size_t, void*) -> nxd_status_t {
          outputs[0] = new nxd_tensor{inputs[0]->value * inputs[0]->value};
          return NXD_OK;
        };
        NXD_TEST_OK(nxd_module_create(ctx, "Square", doubled, nullptr, nullptr, &module));
        const char* const names[] = {"Square"};
        NXD_TEST_OK(nxd_apply_checkpoint(module, names, 1, 1));
        nxd_tensor x{at::ones({3}).to(kXla).set_requires_grad(true)};
        nxd_tensor_t *given = &x, *out = nullptr;
        NXD_TEST_OK(nxd_module_forward(module, &given, 1, &out, 1));
        nxd_tensor loss{out->value.sum()};
        nxd_tensor_t* root = &loss;
        NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
        NXD_TEST_OK(nxd_mark_step(1));
        std::vector<char> graph(65536);
        size_t needed = 0;
        NXD_TEST_OK(
            nxd_device_get_step_graph(NXD_GRAPH_FORMAT_TEXT, graph.data(), graph.size(), &needed));
        NXD_TEST_CHECK(std::string(graph.data()).find("random_state") == std::string::npos);
        NXD_TEST_CHECK(x.value.grad().to(at::kCPU).sum().item<double>() == 6);
        nxd_tensor_destroy(out);
        nxd_module_destroy(module);
      },
      nullptr);
}

int set_up(void**) {
  nxd::use_xla_device();
  return 0;
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_same_bits_are_dropped),
      cmocka_unit_test(test_a_forward_without_random_bits_keeps_no_state),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
