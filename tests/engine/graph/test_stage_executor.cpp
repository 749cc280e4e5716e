// A traced model, run in stages, has the bits of the model: its loss, its logits, its gradients.
#include <random>

#include "engine/graph/callback_support.h"
#include "engine/graph/partition.h"
#include "engine/ops/autocast.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

at::Tensor ids_of(const std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  return at::tensor(values).view(shape);
}

using Cuts = std::vector<std::string>;

void check_model(const ModelOracle& oracle, const Layout& layout, const std::string& layer_class,
                 const Cuts& layer_cuts, const Cuts& fine_cuts) {
  on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, layout);
    if (!model) return 0;
    const auto root = model->value;
    const Tensors inputs{ids_of(oracle.ids, oracle.shape), ids_of(oracle.labels, oracle.shape)};
    try {
      for (const bool whole_layers : {true, false}) {
        nxd::TraceOptions options;
        if (whole_layers) options.leaf_classes = {layer_class};
        const Cuts& cuts = whole_layers ? layer_cuts : fine_cuts;
        for (size_t n = 0; n <= cuts.size(); ++n) {
          const std::string what = layout.name() + ", " + std::to_string(n) + " cuts";
          check_stages(what, root, inputs, 1, options, {cuts.begin(), cuts.begin() + n});
        }
        check_stages(layout.name() + ", logits", root, {inputs[0], {}, at::ones_like(inputs[0])}, 1,
                     options, cuts);
        check_stages(layout.name() + ", both", root, inputs, 2, options, cuts);
      }
    } catch (const std::exception& error) {
      nxd_test_fail(__FILE__, __LINE__, "%s: %s", layout.name().c_str(), error.what());
    }
    return 0;
  });
}

void test_llama(void**) {
  const LlamaOracle oracle;
  for (const Layout& layout : {Layout{1}, Layout{1, false, NXD_DTYPE_F64}, Layout{2},
                               Layout{2, true}, Layout{1, false, NXD_DTYPE_BF16}}) {
    check_model(oracle, layout, "LlamaDecoderLayer",
                {"model.embed_tokens", "model.layers.0", "model.layers.1"},
                {"model.embed_tokens", "model.layers.0.self_attn", "model.layers.0",
                 "model.layers.1.self_attn", "model.layers.1"});
  }
}

void test_gpt2(void**) {
  const ModelOracle oracle("gpt2_tiny");
  for (const Layout& layout : {Layout{1}, Layout{2}, Layout{2, true}}) {
    check_model(oracle, layout, "GPT2Block",
                {"transformer.drop", "transformer.h.0", "transformer.h.1", "transformer.ln_f"},
                {"transformer.wte", "transformer.h.0.attn", "transformer.h.0.ln_2",
                 "transformer.h.1.mlp", "transformer.ln_f"});
  }
}

void test_gpt_neox(void**) {
  for (const char* name : {"gpt_neox_tiny", "gpt_neox_serial_tiny"}) {
    for (const Layout& layout : {Layout{1}, Layout{2}, Layout{2, true}}) {
      check_model(ModelOracle(name), layout, "GPTNeoXLayer",
                  {"gpt_neox.embed_in", "gpt_neox.layers.0", "gpt_neox.layers.2",
                   "gpt_neox.final_layer_norm"},
                  {"gpt_neox.emb_dropout", "gpt_neox.layers.0.attention",
                   "gpt_neox.layers.0.post_attention_layernorm", "gpt_neox.layers.1.mlp",
                   "gpt_neox.layers.2"});
    }
  }
}

// A caller that cuts inside of a leaf hears which one it is.
void test_cuts_inside_of_leaves(void**) {
  const LlamaOracle oracle;
  on_ranks<int>(Layout{1}, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, Layout{1});
    if (!model) return 0;
    const Tensors inputs{ids_of(oracle.ids, oracle.shape), ids_of(oracle.labels, oracle.shape)};
    nxd::TraceOptions options;
    options.leaf_classes = {"LlamaDecoderLayer"};
    const Graph graph = nxd::trace(model->value, inputs, 1, options);
    const std::string child =
        nxd::find_module(model->value, "model.layers.0.self_attn")->class_name();
    refused(NXD_ERROR_INVALID_ARGUMENT,
            "modules of it are inside of \"model.layers.0\", which is a leaf of the graph",
            [&] { nxd::even_cuts(graph, child, 2); });
    refused(NXD_ERROR_INVALID_ARGUMENT,
            "\"model.layers.0.self_attn\" is inside of \"model.layers.0\"",
            [&] { nxd::partition_at(graph, {"model.layers.0.self_attn"}); });
    return 0;
  });
}

// Runs a function on each rank; what it throws is a failure.
void on_each_rank(const Layout& layout, const std::function<void(nxd_context_t*)>& function) {
  on_ranks<int>(layout, 3, [&](nxd_context_t* ctx) {
    try {
      function(ctx);
    } catch (const std::exception& error) {
      nxd_test_fail(__FILE__, __LINE__, "%s: %s", layout.name().c_str(), error.what());
    }
    return 0;
  });
}

at::Tensor mapped(nxd_status_t (*map)(nxd_context_t*, nxd_tensor_t*, nxd_tensor_t**),
                  nxd_context_t* ctx, const at::Tensor& x) {
  nxd_tensor handle{x};
  nxd_tensor_t* out = nullptr;
  nxd::CallbackWatch().check(map(ctx, &handle, &out), "mapping");
  return Tensor(out)->value;
}

// y = 3x, as a caller's function with a shape callback.
struct Triple {
  Triple() {
    nxd_function_options_t options = NXD_FUNCTION_OPTIONS_INIT;
    options.name = "triple";
    options.forward = [](nxd_function_call_t*, nxd_tensor_t* const* in, size_t, nxd_tensor_t** out,
                         size_t, void*) -> nxd_status_t {
      NXD_TEST_CHECK(in[0]->value.is_cpu());
      out[0] = nxd::wrap(in[0]->value * 3);
      return NXD_OK;
    };
    options.backward = [](nxd_function_call_t*, nxd_tensor_t* const* grads, size_t,
                          nxd_tensor_t** out, size_t, void*) -> nxd_status_t {
      out[0] = nxd::wrap(grads[0]->value * 3);
      return NXD_OK;
    };
    options.shape = [](nxd_tensor_t* const* in, size_t, nxd_tensor_t** out, size_t,
                       void*) -> nxd_status_t {
      out[0] = nxd::wrap(at::empty_like(in[0]->value));
      return NXD_OK;
    };
    NXD_TEST_OK(nxd_function_create(&options, &handle));
  }
  ~Triple() { nxd_function_destroy(handle); }

  at::Tensor operator()(const at::Tensor& x) const {
    nxd_tensor input{x};
    nxd_tensor_t* inputs[] = {&input};
    nxd_tensor_t* out = nullptr;
    nxd::CallbackWatch().check(nxd_function_apply(handle, inputs, 1, &out, 1), "triple");
    return Tensor(out)->value;
  }

  nxd_function_t* handle = nullptr;
};

// A block that is entered: a leaf, views that are written to, a region without gradients, a
// function, mappings, and three results, one of them whole numbers.
Module make_block(nxd_context_t* ctx, const Triple& triple) {
  Module block = make_module(ctx, "Block", [ctx, &triple](nxd_module_t* self, const Tensors& in) {
    const at::Tensor weight = parameter_of(self, "weight");
    at::Tensor hidden = at::linear(in[0], weight);
    hidden.narrow(1, 0, 1).mul_(2).add_(in[0].narrow(1, 0, 1));
    at::Tensor order;
    {
      const at::NoGradGuard no_grad;
      order = at::argsort(hidden, 1, false) + in[2];
    }
    hidden = mapped(nxd_copy_to_tensor_region, ctx, hidden);
    const at::Tensor half = mapped(nxd_scatter_to_tensor_region, ctx, hidden);
    const at::Tensor summed = mapped(nxd_gather_from_tensor_region, ctx, triple(half));
    const at::Tensor inner = call_child(self, "inner", {summed})[0];
    at::Tensor result = op_call("add", "Tensor", {inner, in[1]});
    result.add_(1);
    return Tensors{result, inner.detach() * in[1], order.remainder(4)};
  });
  add_parameter(block, "weight", {4, 4});
  const Module inner = make_module(ctx, "Inner", [](nxd_module_t* self, const Tensors& in) {
    return Tensors{at::tanh(in[0]) * parameter_of(self, "scale")};
  });
  add_parameter(inner, "scale", {4});
  add_child(block, "inner", inner);
  return block;
}

// Blocks in a row, with skips over all of them, tied embeddings and a loss.
Module make_callback_model(nxd_context_t* ctx, const Triple& triple, int blocks) {
  Module root = make_module(ctx, "Root", [ctx, blocks](nxd_module_t* self, const Tensors& in) {
    const at::Tensor table = parameter_of(self, "table");
    const at::Tensor first = at::embedding(table, in[0]);
    at::Tensor x = first, y = first * 2, order = in[0].unsqueeze(1);
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "block" + std::to_string(i);
      const Tensors out = call_child(self, name.c_str(), {x, y, order}, 3);
      x = out[0] + first;
      y = out[1];
      order = out[2].narrow(1, 0, 1);
    }
    x = x.gather(1, order) * x + y;
    nxd_tensor logits{at::matmul(x, table.t())}, labels{in[1]};
    nxd_tensor_t* made = nullptr;
    nxd::CallbackWatch().check(nxd_parallel_cross_entropy(ctx, &logits, &labels, nullptr, &made),
                               "loss");
    return Tensors{Tensor(made)->value, x, order};
  });
  add_parameter(root, "table", {6, 4});
  for (int i = 0; i < blocks; ++i) {
    add_child(root, ("block" + std::to_string(i)).c_str(), make_block(ctx, triple));
  }
  return root;
}

void test_callback_model(void**) {
  const Triple triple;
  for (const int tp : {1, 2}) {
    on_each_rank(Layout{tp}, [&](nxd_context_t* ctx) {
      const Module model = make_callback_model(ctx, triple, 4);
      const Tensors inputs{at::tensor({0, 5, 3, 3, 1}).to(at::kLong),
                           at::tensor({1, 2, -100, 0, 5}).to(at::kLong)};
      const Cuts cuts{"block0", "block1.inner", "block1", "block2", "block3.inner"};
      for (size_t n = 0; n <= cuts.size(); ++n) {
        check_stages(std::to_string(n) + " cuts", model->value, inputs, 3, {},
                     {cuts.begin(), cuts.begin() + static_cast<ptrdiff_t>(n)});
      }
      check_stages("whole blocks", model->value, inputs, 3, {{"Block"}, {"block2.inner"}, {}},
                   {"block0", "block2"});
    });
  }
}

// The casts of a trace are those of its stages, whatever the thread that runs them has.
void test_autocast(void**) {
  const LlamaOracle oracle;
  const Triple triple;
  on_each_rank(Layout{1}, [&](nxd_context_t* ctx) {
    const Module llama = create_model(ctx, oracle.config, Layout{1});
    const Module callbacks = make_callback_model(ctx, triple, 2);
    const Tensors tokens{ids_of(oracle.ids, oracle.shape), ids_of(oracle.labels, oracle.shape)};
    const Tensors few{at::tensor({0, 5, 3}).to(at::kLong), at::tensor({1, 2, 0}).to(at::kLong)};
    const auto compare = [&](const nxd::Module& root, const Tensors& inputs, size_t n_outputs,
                             const Cuts& cuts) {
      auto& module = const_cast<nxd::Module&>(root);
      const Outcome plain = run_whole(module, inputs, n_outputs);
      nxd::set_autocast(NXD_DTYPE_BF16);
      const Outcome want = run_whole(module, inputs, n_outputs);
      const auto graph =
          std::make_shared<Graph>(nxd::trace(module.shared_from_this(), inputs, n_outputs, {}));
      nxd::set_autocast(NXD_DTYPE_INVALID);
      const Outcome got = run_stages(graph, nxd::partition_at(*graph, cuts), root, inputs);
      check_same("autocast: output", got.outputs, want.outputs);
      check_same("autocast: gradient", got.gradients, want.gradients);
      NXD_TEST_CHECK(!at::equal(plain.outputs[0], want.outputs[0]));
      NXD_TEST_CHECK(nxd::autocast_dtype() == NXD_DTYPE_INVALID);
    };
    compare(*llama->value, tokens, 1, {"model.layers.0", "model.layers.2.self_attn"});
    // Operators cast where they are called by name.
    const Module named = make_module(ctx, "Named", [](nxd_module_t* self, const Tensors& in) {
      return Tensors{op_call("matmul", "", {in[0], parameter_of(self, "weight")})};
    });
    // Sums so long that the kernels of libtorch, which round each part of them, give others.
    add_parameter(named, "weight", {64, 3});
    compare(*named->value, {at::rand({5, 64})}, 1, {});
  });
}

// One step of a random program: a module of one of these kinds on earlier values.
struct Step {
  int kind, a, b, index, parameter;
  bool is_leaf;
};

at::Tensor run_step(const Step& step, const at::Tensor& weight, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& index) {
  switch (step.kind) {
    case 0: return a + b;
    case 1: return (a * b).tanh();
    case 2: return at::matmul(a, weight).sin();
    case 3: return a.index_select(0, index.select(1, 0)) - b;
    case 4: {
      at::Tensor y = a + b;
      y.narrow(0, 0, 2).mul_(2);
      return y.relu_();
    }
    case 5: {
      const auto parts = a.chunk(2, 1);
      return at::cat({parts[1], b.narrow(1, 1, 2)}, 1);
    }
    case 6: return a.detach() * b.cos();
    default: return at::where(index.gt(1), a, b) * 0.5;
  }
}

struct Program {
  std::vector<Step> steps;
  Cuts cuts;
  bool tied = false;

  explicit Program(unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
    const size_t n = 6 + random() % 10;
    std::vector<int> uses(4);
    for (size_t i = 0; i < n; ++i) {
      Step step{below(8), below(i + 1), below(i + 1), below(i + 1), below(4), below(2) == 0};
      if (step.kind == 2) tied = ++uses[static_cast<size_t>(step.parameter)] > 1 || tied;
      steps.push_back(step);
    }
    for (size_t i = 0; i + 1 < n && cuts.size() < 5; ++i) {
      if (below(3) == 0) cuts.push_back("m" + std::to_string(i));
    }
  }

  // Each step gives a value and whole numbers, and reads any earlier ones.
  Module make(nxd_context_t* ctx) const {
    Module root = make_module(ctx, "Program", [this](nxd_module_t* self, const Tensors& in) {
      Tensors values{in[0]}, indices{in[1]};
      for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        const auto at = [](const Tensors& from, int place) {
          return from[static_cast<size_t>(place)];
        };
        const Tensors out =
            call_child(self, ("m" + std::to_string(i)).c_str(),
                       {at(values, step.a), at(values, step.b), at(indices, step.index)}, 2);
        values.push_back(i % 3 == 0 ? out[0] + 0.25 : out[0]);
        indices.push_back(out[1]);
      }
      return Tensors{values.back() + values[values.size() / 2], indices.back()};
    });
    std::vector<std::shared_ptr<nxd::Parameter>> weights(4);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step step = steps[i];
      const Module module = make_module(ctx, "Step", [step](nxd_module_t* self, const Tensors& in) {
        const at::Tensor weight = self->value->parameter_value("weight");
        const at::Tensor y = run_step(step, weight, in[0], in[1], in[2]);
        return Tensors{y, (in[2] + 1).remainder(4)};
      });
      if (step.kind == 2) {
        auto& weight = weights[static_cast<size_t>(step.parameter)];
        if (weight) {
          module->value->add_parameter("weight", weight);
        } else {
          add_parameter(module, "weight", {4, 4});
          weight = module->value->parameter("weight");
        }
      }
      if (!step.is_leaf) {
        add_child(module, "unused",
                  make_module(ctx, "Unused", [](nxd_module_t*, const Tensors& in) { return in; }));
      }
      add_child(root, ("m" + std::to_string(i)).c_str(), module);
    }
    return root;
  }
};

void test_random_programs(void**) {
  on_each_rank(Layout{1}, [](nxd_context_t* ctx) {
    size_t tied = 0;
    for (unsigned seed = 0; seed < 150; ++seed) {
      const Program program(seed);
      const Module model = program.make(ctx);
      const Tensors inputs{at::arange(16, at::kFloat).view({4, 4}).div(7).cos(),
                           at::arange(16).view({4, 4}).mul(3).remainder(4)};
      // Where several stages add to a parameter's gradient, the order of the sum is another one.
      check_stages("program " + std::to_string(seed), model->value, inputs, 2, {}, program.cuts,
                   program.tied ? 1e-5 : 0);
      tied += program.tied;
    }
    NXD_TEST_CHECK(tied > 20 && tied < 130);
  });
}

// A tensor of zeros has a gradient once others' values are written to parts of it.
void test_written_values_cross(void**) {
  on_ranks<int>(Layout{1}, 3, [](nxd_context_t* ctx) {
    const Module root = make_module(ctx, "Root", [](nxd_module_t* self, const Tensors& in) {
      return call_child(self, "use", call_child(self, "write", in));
    });
    const Module write = make_module(ctx, "Write", [](nxd_module_t* self, const Tensors& in) {
      const at::Tensor x = call_child(self, "inner", in)[0] * parameter_of(self, "weight");
      const at::Tensor out = at::zeros_like(x);
      out.narrow(1, 0, 1).copy_(x.narrow(1, 2, 1));
      out.narrow(1, 1, 2).copy_(x.narrow(1, 0, 2) * 2);
      return Tensors{out};
    });
    const Module use = make_module(ctx, "Use", [](nxd_module_t* self, const Tensors& in) {
      return Tensors{(in[0] * parameter_of(self, "weight")).sum()};
    });
    add_child(root, "write", write);
    add_child(root, "use", use);
    // A module with children is no leaf: its own operators are in the graph.
    add_child(write, "inner", make_module(ctx, "Inner", [](nxd_module_t*, const Tensors& in) {
                return Tensors{in[0].sin()};
              }));
    for (const Module* module : {&write, &use}) add_parameter(*module, "weight", {3});
    check_stages("written values", root->value, {at::arange(6.0F).view({2, 3})}, 1, {}, {"write"});
    return 0;
  });
}

// The base of the view has a gradient by what was added to it.
void test_a_view_is_written_after_its_base(void**) {
  on_ranks<int>(Layout{1}, 3, [](nxd_context_t* ctx) {
    const Module root = make_module(ctx, "Root", [](nxd_module_t* self, const Tensors& in) {
      const at::Tensor out = call_child(self, "inner", in)[0] * 2, view = out.t();
      out.add_(parameter_of(self, "weight"));
      op_call("mul_", "Tensor", {view, view.detach().clone()});
      return Tensors{out.sum()};
    });
    add_child(root, "inner", make_module(ctx, "Inner", [](nxd_module_t*, const Tensors& in) {
                return Tensors{in[0].sin()};
              }));
    add_parameter(root, "weight", {3});
    check_stages("written view", root->value, {at::arange(6.0F).view({2, 3})}, 1, {}, {"inner"});
    return 0;
  });
}

// Substitutes take a parameter's place, and are given the gradient.
void test_substitutes(void**) {
  on_each_rank(Layout{1}, [](nxd_context_t* ctx) {
    const Module model = make_module(ctx, "Scale", [](nxd_module_t* self, const Tensors& in) {
      return Tensors{in[0] * parameter_of(self, "scale")};
    });
    add_parameter(model, "scale", {3});
    const Tensors inputs{at::ones({2, 3})};
    const auto graph = std::make_shared<Graph>(nxd::trace(model->value, inputs, 1, {}));
    const nxd::StageExecutor stage(graph, nxd::partition_at(*graph, {}), 0);
    NXD_TEST_CHECK(stage.parameters().size() == 1 && stage.parameters()[0].name == "scale");
    const at::Tensor other = at::full({3}, 5.0F).set_requires_grad(true);
    std::vector<nxd::ParameterUse> uses;
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
      const auto& inputs_of = graph->nodes[i].inputs;
      if (inputs_of.size() == 2)
        uses.push_back({static_cast<int>(i), stage.parameters()[0].parameter, other});
    }
    NXD_TEST_CHECK(uses.size() == 1);
    const Tensors out = stage.run({}, inputs, uses);
    NXD_TEST_CHECK(at::equal(out[0], at::full({2, 3}, 5.0F)));
    backward({out[0].sum()}, {at::ones({})});
    NXD_TEST_CHECK(!take_gradients(*model->value)[0].defined());
    NXD_TEST_CHECK(at::equal(other.grad(), at::full({3}, 2.0F)));
    // Without recording nothing is kept for a backward pass.
    const at::NoGradGuard no_grad;
    NXD_TEST_CHECK(!stage.run({}, inputs)[0].requires_grad());
    refused(NXD_ERROR_INTERNAL, "stage: expected 0 inputs, got 1",
            [&] { stage.run({inputs[0]}, inputs); });
  });
}

// A value goes when nothing uses it any more, not when the run ends.
void test_values_are_released(void**) {
  on_each_rank(Layout{1}, [](nxd_context_t* ctx) {
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> seen;
    size_t most = 0;
    const Module root = make_module(ctx, "Root", [](nxd_module_t* self, const Tensors& in) {
      at::Tensor x = in[0];
      for (int i = 0; i < 8; ++i) x = call_child(self, "double", {x})[0];
      return Tensors{x};
    });
    add_child(root, "double", make_module(ctx, "Double", [&](nxd_module_t*, const Tensors& in) {
                const at::Tensor y = in[0] * 2;
                size_t alive = 0;
                for (const auto& tensor : seen) alive += tensor.expired() ? 0 : 1;
                most = std::max(most, alive);
                seen.emplace_back(y.getIntrusivePtr());
                return Tensors{y};
              }));
    const Tensors inputs{at::ones({4})};
    const auto graph = std::make_shared<Graph>(nxd::trace(root->value, inputs, 1, {}));
    const nxd::StageExecutor stage(graph, nxd::partition_at(*graph, {}), 0);
    seen.clear();
    most = 0;
    const at::NoGradGuard no_grad;
    NXD_TEST_CHECK(stage.run({}, inputs)[0].sum().item<double>() == 4 * 256);
    NXD_TEST_CHECK(seen.size() == 8 && most == 1);
  });
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_llama),
      cmocka_unit_test(test_gpt2),
      cmocka_unit_test(test_gpt_neox),
      cmocka_unit_test(test_cuts_inside_of_leaves),
      cmocka_unit_test(test_callback_model),
      cmocka_unit_test(test_autocast),
      cmocka_unit_test(test_random_programs),
      cmocka_unit_test(test_written_values_cross),
      cmocka_unit_test(test_a_view_is_written_after_its_base),
      cmocka_unit_test(test_substitutes),
      cmocka_unit_test(test_values_are_released),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
