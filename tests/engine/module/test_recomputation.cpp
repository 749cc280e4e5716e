// Activations that are computed again in backward: losses and gradients have the same bits as
// without, hooks are called as often, and less is kept meanwhile.
#include "engine/microbatch_run.h"

#include <ATen/core/grad_mode.h>

namespace {

using namespace nxd_test;

void check(const Setting& setting, std::vector<const char*> names, bool deferred = false) {
  Setting recomputed = setting;
  recomputed.recomputed = std::move(names);
  recomputed.deferred = deferred;
  check_same(recomputed, setting);
}

void test_layouts(void**) {
  for (const int tp : {1, 2}) {
    for (const bool sequence_parallel : {false, true}) {
      Setting setting;
      setting.layout = Layout{tp, sequence_parallel, NXD_DTYPE_F32};
      setting.tied = sequence_parallel;
      check(setting, {"LlamaDecoderLayer"}, tp == 2);
      for (const char* form : {"mistral_tiny", "qwen2_tiny", "qwen3_tiny"}) {
        setting.model = form;
        check(setting, {"LlamaDecoderLayer"}, tp == 1);
        check(setting, {"Attention"}, tp == 2);
      }
      setting.model = "gpt2_tiny";
      check(setting, {"GPT2Block"}, tp == 1);
      for (const char* residual : {"gpt_neox_tiny", "gpt_neox_serial_tiny"}) {
        setting.model = residual;
        check(setting, {"GPTNeoXLayer"}, tp == 2);
        check(setting, {"GPTNeoXAttention", "GPTNeoXMLP"}, tp == 1);
      }
    }
  }
}

// Paths, classes that repeat, and modules inside of one another.
void test_names(void**) {
  Setting setting;
  setting.tied = true;
  check(setting, {"model.layers.1", "model.layers.0.mlp"});
  check(setting, {"LlamaForCausalLM"});
  check(setting, {"LlamaForCausalLM", "LlamaDecoderLayer", "GatedMLP", "Attention"}, true);
  check(setting, {"RMSNorm", "ParallelEmbedding"}, true);
}

void test_dtypes(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_BF16, NXD_DTYPE_F64}) {
    Setting setting;
    setting.layout.dtype = dtype;
    check(setting, {"LlamaDecoderLayer"}, dtype == NXD_DTYPE_BF16);
  }
  Setting setting;
  setting.autocast = true;
  check(setting, {"LlamaDecoderLayer"});
  setting = {};
  setting.frozen = true;
  check(setting, {"LlamaDecoderLayer"}, true);
}

void test_data_parallel(void**) {
  for (const int stage : {0, 1}) {
    Setting setting;
    setting.dp = 2;
    setting.stage = stage;
    setting.model = "gpt2_tiny";
    setting.layout.tp = stage == 1 ? 2 : 1;
    check(setting, {"GPT2Block"}, stage == 1);
    setting.layout = Layout{1, false, NXD_DTYPE_BF16};
    setting.fp32_grads = true;
    check(setting, {"GPT2Block"}, stage == 0);
  }
}

// A module of the caller's: scale * x + y through a dropout of ATen's; gives that, x itself, and
// the ids it was given. y may be left out.
struct Mix {
  nxd_module_t* module = nullptr;
  int calls = 0;
  bool writes = false;
};

nxd_status_t mix(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t n_inputs,
                 nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  auto& state = *static_cast<Mix*>(user_data);
  ++state.calls;
  NXD_TEST_CHECK(n_inputs == 3 && n_outputs == 3);
  nxd_parameter_t* scale = nullptr;
  nxd_tensor_t* weight = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(self, "scale", &scale));
  NXD_TEST_OK(nxd_parameter_get_tensor(scale, &weight));
  if (state.writes) inputs[0]->value.add_(1);
  const at::Tensor scaled = inputs[0]->value * weight->get();
  const at::Tensor dropped = at::dropout(scaled, 0.5, self->value->training());
  outputs[0] = new nxd_tensor{inputs[1] ? dropped + inputs[1]->value : dropped};
  NXD_TEST_OK(nxd_tensor_retain(inputs[0], &outputs[1]));
  NXD_TEST_OK(nxd_tensor_retain(inputs[2], &outputs[2]));
  return NXD_OK;
}

Module make_mix(nxd_context_t* ctx, Mix& state) {
  NXD_TEST_OK(nxd_module_create(ctx, "Mix", mix, &state, nullptr, &state.module));
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.init = NXD_INIT_NORMAL;
  options.init_b = 1;
  const int64_t shape[] = {16};
  NXD_TEST_OK(nxd_module_add_parameter(state.module, "scale", shape, 1, &options, nullptr));
  NXD_TEST_OK(nxd_module_initialize(state.module, 3));
  return Module(state.module);
}

struct MixRun {
  at::Tensor y, dx, dy, dscale;
  int calls = 0;
};

// Two calls of one module in one graph, the second in another mode; with by_value the gradients
// are asked for.
MixRun run_mix(nxd_context_t* ctx, bool recomputed, bool with_y, bool by_value) {
  Mix state;
  const Module module = make_mix(ctx, state);
  const char* const names[] = {"Mix"};
  if (recomputed) NXD_TEST_OK(nxd_apply_checkpoint(module.get(), names, 1, 1));
  at::manual_seed(5);
  nxd_tensor x{at::arange(32, at::kFloat).view({2, 16}).sin().set_requires_grad(true)};
  nxd_tensor y{at::arange(32, at::kFloat).view({2, 16}).cos().set_requires_grad(true)};
  nxd_tensor ids{at::arange(3)};
  nxd_tensor_t* inputs[] = {&x, with_y ? &y : nullptr, &ids};
  nxd_tensor_t *first[3] = {}, *second[3] = {};
  NXD_TEST_OK(nxd_module_forward(module.get(), inputs, 3, first, 3));
  NXD_TEST_CHECK(first[1]->value.requires_grad() && at::equal(first[1]->value, x.value));
  NXD_TEST_CHECK(at::equal(first[2]->value, ids.value) && !first[2]->value.requires_grad());
  NXD_TEST_OK(nxd_module_set_training(module.get(), 0));
  nxd_tensor_t* again[] = {first[0], first[1], &ids};
  NXD_TEST_OK(nxd_module_forward(module.get(), again, 3, second, 3));
  NXD_TEST_OK(nxd_module_set_training(module.get(), 1));
  nxd_tensor loss{second[0]->value.pow(2).sum() + (second[1]->value * 3).sum()};
  nxd_tensor_t* root = &loss;
  MixRun run;
  const at::Tensor scale = nxd::find_parameter(*module->value, "scale")->tensor();
  if (by_value) {
    nxd_tensor weight{scale};
    nxd_tensor_t* wanted[] = {&weight, &x};
    nxd_tensor_t* found[2] = {};
    NXD_TEST_OK(nxd_grad(&root, nullptr, 1, wanted, 2, 0, found));
    run.dscale = found[0]->value;
    run.dx = found[1]->value;
    NXD_TEST_CHECK(!scale.grad().defined() && !x.value.grad().defined());
    for (nxd_tensor_t* each : found) nxd_tensor_destroy(each);
  } else {
    NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 1));
    run.dscale = scale.grad().clone();
    run.dx = x.value.grad().clone();
    if (with_y) run.dy = y.value.grad().clone();
    // The graph was kept: the same again is added.
    NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
    NXD_TEST_CHECK(at::equal(x.value.grad(), run.dx * 2));
    NXD_TEST_REFUSED(nxd_backward(&root, nullptr, 1, 0), NXD_ERROR_INVALID_STATE, "");
  }
  run.y = loss.value.detach();
  run.calls = state.calls;
  for (nxd_tensor_t* each : first) nxd_tensor_destroy(each);
  for (nxd_tensor_t* each : second) nxd_tensor_destroy(each);
  return run;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

void test_callback_module(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const bool with_y : {true, false}) {
          for (const bool by_value : {false, true}) {
            const MixRun want = run_mix(ctx, false, with_y, by_value);
            const MixRun got = run_mix(ctx, true, with_y, by_value);
            NXD_TEST_CHECK(want.calls == 2 && got.calls == (by_value ? 4 : 6));
            NXD_TEST_CHECK(same(got.y, want.y) && want.dscale.abs().sum().item<double>() > 0);
            NXD_TEST_CHECK(same(got.dscale, want.dscale));
            NXD_TEST_CHECK(same(got.dx, want.dx) && same(got.dy, want.dy));
          }
        }
      },
      nullptr);
}

// The generator goes on after a backward pass as it would have without recomputation.
void test_generator(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        run_mix(ctx, false, true, false);
        const at::Tensor want = at::rand({4});
        run_mix(ctx, true, true, false);
        NXD_TEST_CHECK(at::equal(at::rand({4}), want));
        // Also where a caller has drawn from it since the forward.
        at::Tensor next[2];
        for (const bool recomputed : {false, true}) {
          Mix state;
          const Module module = make_mix(ctx, state);
          const char* const names[] = {"Mix"};
          if (recomputed) NXD_TEST_OK(nxd_apply_checkpoint(module.get(), names, 1, 1));
          at::manual_seed(5);
          nxd_tensor x{at::ones({2, 16})}, ids{at::arange(3)};
          nxd_tensor_t *inputs[] = {&x, nullptr, &ids}, *out[3] = {};
          NXD_TEST_OK(nxd_module_forward(module.get(), inputs, 3, out, 3));
          at::rand({4});
          nxd_tensor loss{out[0]->value.sum()};
          nxd_tensor_t* root = &loss;
          NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
          next[recomputed] = at::rand({4});
          for (nxd_tensor_t* each : out) nxd_tensor_destroy(each);
        }
        NXD_TEST_CHECK(at::equal(next[0], next[1]));
      },
      nullptr);
}

// A forward of another microbatch, and of another step, between a forward and its backward pass.
void test_places_of_random_bits(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_module_t* made = nullptr;
        NXD_TEST_OK(nxd_layer_create_dropout(ctx, 0.5, "drop", -1, &made));
        const Module dropout(made);
        const char* const names[] = {"Dropout"};
        NXD_TEST_OK(nxd_apply_checkpoint(made, names, 1, 1));
        nxd_tensor x{at::ones({4, 64}).set_requires_grad(true)};
        nxd_tensor_t *input = &x, *y = nullptr;
        NXD_TEST_OK(nxd_context_set_step(ctx, 3, 1));
        NXD_TEST_OK(nxd_module_forward(made, &input, 1, &y, 1));
        const Tensor output(y);
        for (const auto& [step, microbatch] : {std::pair(3, 0), std::pair(4, 1)}) {
          NXD_TEST_OK(nxd_context_set_step(ctx, step, microbatch));
          nxd_tensor loss{y->value.sum()};
          nxd_tensor_t* root = &loss;
          x.value.mutable_grad().reset();
          NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 1));
          NXD_TEST_CHECK(at::equal(x.value.grad(), y->value));
          int64_t now[2] = {};
          NXD_TEST_OK(nxd_context_get_step(ctx, &now[0], &now[1]));
          NXD_TEST_CHECK(now[0] == step && now[1] == microbatch);
        }
        // While nothing is recorded a call is an ordinary one.
        NXD_TEST_OK(nxd_set_grad_enabled(0, nullptr));
        NXD_TEST_OK(nxd_module_forward(made, &input, 1, &y, 1));
        NXD_TEST_OK(nxd_set_grad_enabled(1, nullptr));
        NXD_TEST_CHECK(!Tensor(y)->value.requires_grad());
      },
      nullptr);
}

// Nothing to differentiate: the call is an ordinary one. And what may not change does not.
void test_refusals(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        Mix state;
        const Module module = make_mix(ctx, state);
        const char *mixes[] = {"Mix"}, *unknown[] = {"Mix", "Max"}, *null[] = {nullptr};
        NXD_TEST_REFUSED(nxd_apply_checkpoint(nullptr, mixes, 1, 1), NXD_ERROR_INVALID_ARGUMENT,
                         "root: expected a module");
        NXD_TEST_REFUSED(nxd_apply_checkpoint(module.get(), nullptr, 1, 1),
                         NXD_ERROR_INVALID_ARGUMENT, "names: expected an array of 1");
        NXD_TEST_REFUSED(nxd_apply_checkpoint(module.get(), null, 1, 1), NXD_ERROR_INVALID_ARGUMENT,
                         "names[0]: expected a string");
        NXD_TEST_REFUSED(nxd_apply_checkpoint(module.get(), mixes, 1, 2),
                         NXD_ERROR_INVALID_ARGUMENT, "on: expected 0 or 1, got 2");
        NXD_TEST_REFUSED(nxd_apply_checkpoint(module.get(), unknown, 2, 1),
                         NXD_ERROR_INVALID_ARGUMENT, "Mix");
        NXD_TEST_CHECK(!module->value->recomputes());
        NXD_TEST_REFUSED(nxd_apply_checkpoint(module.get(), nullptr, 0, 1),
                         NXD_ERROR_INVALID_ARGUMENT, "no built-in model");

        NXD_TEST_OK(nxd_apply_checkpoint(module.get(), mixes, 1, 1));
        nxd_tensor x{at::ones({2, 16})}, ids{at::arange(3)};
        nxd_tensor_t *inputs[] = {&x, nullptr, &ids}, *out[3] = {};
        state.writes = true;
        NXD_TEST_REFUSED(nxd_module_forward(module.get(), inputs, 3, out, 3),
                         NXD_ERROR_INVALID_STATE, "Mix: input 0 was written to");
        state.writes = false;
        NXD_TEST_OK(nxd_module_forward(module.get(), inputs, 3, out, 3));
        x.value.add_(1);
        nxd_tensor loss{out[0]->value.sum()};
        nxd_tensor_t* root = &loss;
        NXD_TEST_REFUSED(nxd_backward(&root, nullptr, 1, 0), NXD_ERROR_INVALID_STATE,
                         "Mix: input 0 was written to");
        for (nxd_tensor_t* each : out) nxd_tensor_destroy(each);

        NXD_TEST_OK(nxd_module_forward(module.get(), inputs, 3, out, 3));
        {
          const at::NoGradGuard no_grad;
          nxd::find_parameter(*module->value, "scale")->tensor().add_(1);
        }
        loss.value = out[0]->value.sum();
        NXD_TEST_REFUSED(nxd_backward(&root, nullptr, 1, 0), NXD_ERROR_INVALID_STATE,
                         "parameter scale was written to");
        for (nxd_tensor_t* each : out) nxd_tensor_destroy(each);

        nxd::find_parameter(*module->value, "scale")->tensor().set_requires_grad(false);
        state.calls = 0;
        NXD_TEST_OK(nxd_module_forward(module.get(), inputs, 3, out, 3));
        NXD_TEST_CHECK(!out[0]->value.requires_grad() && state.calls == 1);
        for (nxd_tensor_t* each : out) nxd_tensor_destroy(each);
        NXD_TEST_OK(nxd_apply_checkpoint(module.get(), mixes, 1, 0));
        NXD_TEST_CHECK(!module->value->recomputes());
      },
      nullptr);
}

// Gives scale * x, and a view of it.
nxd_status_t with_view(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t,
                       nxd_tensor_t** outputs, size_t, void*) {
  const at::Tensor y = inputs[0]->value * nxd::find_parameter(*self->value, "scale")->tensor();
  outputs[0] = new nxd_tensor{y};
  outputs[1] = new nxd_tensor{y.select(0, 0)};
  return NXD_OK;
}

// A write to one reaches the other, whose gradient the graph that is made again would not know.
void test_outputs_that_share_memory(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_module_t* made = nullptr;
        NXD_TEST_OK(nxd_module_create(ctx, "Pair", with_view, nullptr, nullptr, &made));
        const Module module(made);
        const int64_t shape[] = {16};
        NXD_TEST_OK(nxd_module_add_parameter(made, "scale", shape, 1, nullptr, nullptr));
        NXD_TEST_OK(nxd_module_initialize(made, 3));
        const char* const names[] = {"Pair"};
        NXD_TEST_OK(nxd_apply_checkpoint(made, names, 1, 1));
        nxd_tensor x{at::ones({2, 16})};
        nxd_tensor_t *input = &x, *out[2] = {};
        for (const bool writes : {false, true}) {
          NXD_TEST_OK(nxd_module_forward(made, &input, 1, out, 2));
          if (writes) out[1]->value.mul_(0.5);
          nxd_tensor loss{out[0]->value.sum() + out[1]->value.sum()};
          nxd_tensor_t* root = &loss;
          if (writes) {
            NXD_TEST_REFUSED(nxd_backward(&root, nullptr, 1, 0), NXD_ERROR_INVALID_STATE,
                             "which shares memory with another output, was written to");
          } else {
            NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
            const at::Tensor grad = nxd::find_parameter(*made->value, "scale")->tensor().grad();
            NXD_TEST_CHECK(at::equal(grad, at::full({16}, 3.0)));
          }
          for (nxd_tensor_t* each : out) nxd_tensor_destroy(each);
        }
      },
      nullptr);
}

// A tensor that stands in for a parameter during a call is what the gradient belongs to.
void test_stand_in(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        Mix state;
        const Module module = make_mix(ctx, state);
        const char* const names[] = {"Mix"};
        NXD_TEST_OK(nxd_apply_checkpoint(module.get(), names, 1, 1));
        NXD_TEST_OK(nxd_module_set_training(module.get(), 0));
        at::Tensor& value = nxd::find_parameter(*module->value, "scale")->tensor();
        const at::Tensor own = value, stand_in = at::full({16}, 2.0).set_requires_grad(true);
        nxd_tensor x{at::full({2, 16}, 3.0)}, ids{at::arange(3)};
        nxd_tensor_t *inputs[] = {&x, nullptr, &ids}, *out[3] = {};
        value = stand_in;
        NXD_TEST_OK(nxd_module_forward(module.get(), inputs, 3, out, 3));
        value = own;
        nxd_tensor loss{out[0]->value.pow(2).sum()};
        nxd_tensor_t* root = &loss;
        NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
        NXD_TEST_CHECK(value.is_same(own) && !own.grad().defined());
        NXD_TEST_CHECK(at::equal(stand_in.grad(), at::full({16}, 72.0)));
        for (nxd_tensor_t* each : out) nxd_tensor_destroy(each);
      },
      nullptr);
}

// Memory kept between a forward and its backward pass, in bytes of the pool.
void test_memory(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const ModelOracle oracle("llama_tiny");
        nlohmann::json config = nlohmann::json::parse(oracle.config);
        config["num_hidden_layers"] = 8;
        const Module model = create_model(ctx, config.dump(), Layout{});
        const auto kept = [&] {
          const Tensor ids = make_i64(oracle.ids, oracle.shape);
          const Tensor labels = make_i64(oracle.labels, oracle.shape);
          nxd_tensor_t *inputs[] = {ids.get(), labels.get()}, *out = nullptr;
          nxd_memory_stats_t stats = {};
          stats.struct_size = sizeof stats;
          NXD_TEST_OK(nxd_memory_get_stats(&stats));
          const uint64_t before = stats.bytes_in_use;
          NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 2, &out, 1));
          NXD_TEST_OK(nxd_memory_get_stats(&stats));
          nxd_tensor_destroy(out);
          return stats.bytes_in_use - before;
        };
        kept();  // also what is made once, such as rotary tables
        const uint64_t all = kept();
        NXD_TEST_OK(nxd_apply_checkpoint(model.get(), nullptr, 0, 1));
        const uint64_t few = kept();
        if (few * 4 > all) {
          nxd_test_fail(__FILE__, __LINE__, "%zu bytes kept, %zu without recomputation",
                        static_cast<size_t>(few), static_cast<size_t>(all));
        }
        NXD_TEST_OK(nxd_apply_checkpoint(model.get(), nullptr, 0, 0));
        NXD_TEST_CHECK(kept() == all);
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_dtypes),
      cmocka_unit_test(test_data_parallel),
      cmocka_unit_test(test_callback_module),
      cmocka_unit_test(test_generator),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_stand_in),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_places_of_random_bits),
      cmocka_unit_test(test_outputs_that_share_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
