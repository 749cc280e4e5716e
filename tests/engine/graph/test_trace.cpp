// Calls that a trace records, and calls that it rejects.
#include "capi/engine_handles.h"
#include "engine/graph/callback_support.h"
#include "engine/ops/autocast.h"
#include "engine/stablehlo/device_backend.h"
#include "support/temp_dir.h"

#include "support/check.h"

using namespace nxd_test;
using nxd::TraceOptions;

namespace {

// Runs a function with a context of one rank; what it throws is a failure.
void on_one_rank(const std::function<void(nxd_context_t*)>& function) {
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    try {
      function(ctx);
    } catch (const std::exception& error) {
      nxd_test_fail(__FILE__, __LINE__, "%s", error.what());
    }
    return 0;
  });
}

at::Tensor rows(int64_t n, int64_t features) {
  return at::arange(n * features, at::kFloat).view({n, features});
}

Graph trace_of(const Module& module, const Tensors& inputs, const TraceOptions& options = {},
               size_t n_outputs = 1) {
  return nxd::trace(module->value, inputs, n_outputs, options);
}

// A root with one child of class Block, called "block", whose forward is the function.
struct Tree {
  Module root, block;
};
Tree make_tree(nxd_context_t* ctx, Forward forward) {
  Tree tree{make_module(ctx, "Root",
                        [](nxd_module_t* self, const Tensors& in) {
                          return call_child(self, "block", in);
                        }),
            make_module(ctx, "Block", std::move(forward))};
  add_child(tree.root, "block", tree.block);
  add_child(tree.block, "inner", make_module(ctx, "Inner", [](nxd_module_t*, const Tensors& in) {
              return Tensors{in[0].sin()};
            }));
  return tree;
}

void check_text(const Graph& graph, const std::string& want) {
  const std::string got = graph.to_text();
  if (NXD_TEST_CHECK(got == want)) return;
  fprintf(stderr, "expected:\n%s\ngot:\n%s\n", want.c_str(), got.c_str());
}

void assert_same_calls(const Graph& graph, const std::vector<std::string>& want) {
  std::vector<std::string> paths;
  for (const nxd::ModuleCall& call : graph.calls) paths.push_back(call.path);
  NXD_TEST_CHECK(paths == want);
}

void test_text(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const at::Tensor scale = at::full({3}, 0.5F);
    const Tree tree = make_tree(ctx, [scale](nxd_module_t* self, const Tensors& in) {
      const at::Tensor weight = parameter_of(self, "weight");
      at::Tensor x = at::matmul(in[0], weight.t()) * scale;
      x.add_(1);
      const at::Tensor parts = at::cat({x, call_child(self, "inner", {x})[0]}, -1);
      const Tensor columns = make_i64({0, 1, 3, 5}, {4});
      const at::NoGradGuard no_grad;
      return Tensors{at::index_select(parts, 1, columns->value)};
    });
    add_parameter(tree.block, "weight", {3, 2});
    const Graph graph = trace_of(tree.root, {rows(2, 2), {}}, {{}, {}, {"x", "left_out"}});
    check_text(graph, R"(inputs: x, left_out
x: f32[2, 2] = input 0
block_weight: f32[3, 2] grad = parameter block.weight
t: f32[2, 3] grad = aten::t(block_weight)  # in block
matmul: f32[2, 3] grad = aten::matmul(x, t)  # in block
constant: f32[3] = constant
mul: f32[2, 3] grad = aten::mul.Tensor(matmul, constant)  # in block
add: f32[2, 3] grad = aten::add_.Scalar(mul, 1, 1) writes  # in block
block_inner: f32[2, 3] grad = module block.inner(add) : Inner  # in block
cat: f32[2, 6] grad = aten::cat([add, block_inner], -1)  # in block
host_values: i64[4] = function host_values()  # in block
index_select: f32[2, 4] = aten::index_select(cat, 1, host_values) without grad  # in block
outputs: index_select
)");
    assert_same_calls(graph, {"block.inner", "block"});
    const std::string dot = graph.to_dot();
    for (const char* part :
         {"digraph {", "n0 -> n3 [label=\"f32[2, 2]\"]", "shape=ellipse", "}\n"}) {
      NXD_TEST_CHECK(dot.find(part) != std::string::npos);
    }
  });
}

const char* const kLlama = R"(inputs: input_0, input_1
input_0: i64[2, 8] = input 0
input_1: i64[2, 8] = input 1
model_embed_tokens: f32[2, 8, 64] grad = module model.embed_tokens(input_0) : ParallelEmbedding  # in model
model_layers_0_input_layernorm_weight: f32[64] grad = parameter model.layers.0.input_layernorm.weight
rms_norm_and_input: f32[2, 8, 64] grad, rms_norm_and_input_1: f32[2, 8, 64] grad = function rms_norm_and_input(model_embed_tokens, model_layers_0_input_layernorm_weight)  # in model.layers.0
model_layers_0_self_attn: f32[2, 8, 64] grad = module model.layers.0.self_attn(rms_norm_and_input_1, none) : Attention  # in model.layers.0
model_layers_0_post_attention_layernorm_weight: f32[64] grad = parameter model.layers.0.post_attention_layernorm.weight
add_rms_norm: f32[2, 8, 64] grad, add_rms_norm_1: f32[2, 8, 64] grad = function add_rms_norm(model_layers_0_self_attn, rms_norm_and_input, model_layers_0_post_attention_layernorm_weight)  # in model.layers.0
model_layers_0_mlp: f32[2, 8, 64] grad = module model.layers.0.mlp(add_rms_norm_1) : GatedMLP  # in model.layers.0
model_norm_weight: f32[64] grad = parameter model.norm.weight
add_rms_norm_2: f32[2, 8, 64] grad, add_rms_norm_3: f32[2, 8, 64] grad = function add_rms_norm(model_layers_0_mlp, add_rms_norm, model_norm_weight)  # in model
full_like: i64[2, 8] = aten::full_like(input_1, -100, None, None, None, None, None)
narrow: i64[2, 7] = aten::narrow(full_like, 1, 0, 7)
narrow_1: i64[2, 7] = aten::narrow(input_1, 1, 1, 7)
copy: i64[2, 7] = aten::copy_(narrow, narrow_1, False) writes
lm_head_weight: f32[128, 64] grad = parameter lm_head.weight
linear_cross_entropy: f32[] grad = function linear_cross_entropy(add_rms_norm_3, lm_head_weight, none, full_like)
outputs: linear_cross_entropy
)";

void test_llama_text(void**) {
  const LlamaOracle oracle;
  nlohmann::json config = nlohmann::json::parse(oracle.config);
  config["num_hidden_layers"] = 1;
  const Layout layout{2};
  on_ranks<int>(layout, 3, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, config.dump(), layout);
    nxd_model_options_t options = layout.model_options();
    options.device = NXD_DEVICE_META;
    nxd_module_t* deferred = nullptr;
    NXD_TEST_OK(nxd_model_create(ctx, config.dump().c_str(), &options, &deferred));
    const at::Tensor ids = at::zeros({2, 8}, at::kLong);
    // With and without values in the parameters.
    check_text(trace_of(model, {ids, ids}), kLlama);
    check_text(trace_of(Module(deferred), {ids, ids}), kLlama);
    return 0;
  });
}
// Traces on one rank of two: whatever it waited for would not come.
void test_nothing_is_communicated(void**) {
  for (const char* name :
       {"llama_tiny", "mistral_tiny", "qwen3_tiny", "gpt2_tiny", "gpt_neox_tiny"}) {
    const ModelOracle oracle(name);
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{2, sequence_parallel};
      on_ranks<int>(layout, 3, [&](nxd_context_t* ctx) {
        const Module model = create_model(ctx, oracle.config, layout);
        int32_t rank = 0;
        NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
        if (rank == 1) return 0;
        const at::Tensor ids = at::zeros({2, 8}, at::kLong);
        const Graph graph = trace_of(model, {ids, ids, ids}, {}, 2);
        const auto& logits = graph.values[static_cast<size_t>(graph.outputs[1])];
        NXD_TEST_CHECK(logits.shape == (std::vector<int64_t>{2, 8, (oracle.vocabulary + 1) / 2}));
        NXD_TEST_CHECK(graph.values[static_cast<size_t>(graph.outputs[0])].needs_grad);
        // Nor is a rejection: labels of another shape.
        refused(NXD_ERROR_INVALID_ARGUMENT, "labels: expected", [&] {
          trace_of(model, {ids, ids.narrow(1, 0, 4)});
        });
        return 0;
      });
    }
  }
}

// A read in the block's forward is rejected, also when the callback goes on.
void test_reads_are_refused(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const auto read = [&](const char* what, const char* operation,
                          const std::function<void(const at::Tensor&, nxd_tensor_t*)>& access) {
      for (const bool goes_on : {false, true}) {
        const Tree tree = make_tree(ctx, [&](nxd_module_t* self, const Tensors& in) {
          const at::Tensor x = std::string(what) == "parameter" ? parameter_of(self, "weight")
                               : std::string(what) == "made"    ? in[0] * 2
                                                                : in[0];
          nxd_tensor handle{x};
          try {
            access(x, &handle);
          } catch (const std::exception&) {
            if (!goes_on) throw;
          }
          return in;
        });
        add_parameter(tree.block, "weight", {2, 2});
        refused(NXD_ERROR_INVALID_STATE,
                std::string("Block at block: the forward reads a value (") + operation + ")",
                [&] { trace_of(tree.root, {rows(2, 2)}); });
        // It can be run all the same.
        if (std::string(operation) != "backward") tree.root->value->call({rows(1, 1)});
      }
    };
    const auto ok = [](nxd_status_t status) {
      if (status != NXD_OK) throw nxd::Error(status, nxd_last_error());
    };
    for (const char* what : {"input", "parameter", "made"}) {
      read(what, "aten::item", [](const at::Tensor& x, nxd_tensor_t*) { x.sum().item(); });
      read(what, "aten::is_nonzero",
           [](const at::Tensor& x, nxd_tensor_t*) { x.sum().is_nonzero(); });
      read(what, "aten::nonzero", [](const at::Tensor& x, nxd_tensor_t*) { x.nonzero(); });
      read(what, "aten::masked_select",
           [](const at::Tensor& x, nxd_tensor_t*) { x.masked_select(x.gt(0)); });
      read(what, "aten::index", [](const at::Tensor& x, nxd_tensor_t*) { x.index({x.gt(0)}); });
      read(what, "aten::_unique2", [](const at::Tensor& x, nxd_tensor_t*) { at::_unique2(x); });
      read(what, "nxd_tensor_get_data", [&](const at::Tensor&, nxd_tensor_t* handle) {
        void* data = nullptr;
        ok(nxd_tensor_get_data(handle, &data));
      });
      read(what, "nxd_tensor_copy_to_host", [&](const at::Tensor& x, nxd_tensor_t* handle) {
        std::vector<float> host(static_cast<size_t>(x.numel()));
        ok(nxd_tensor_copy_to_host(handle, host.data(), host.size() * sizeof(float)));
      });
      read(what, "nxd_tensor_get_item", [&](const at::Tensor& x, nxd_tensor_t*) {
        nxd_tensor one{x.sum()};
        double value = 0;
        ok(nxd_tensor_get_item(&one, &value));
      });
      read(what, "nxd_tensor_to_dlpack", [&](const at::Tensor& x, nxd_tensor_t*) {
        nxd_tensor detached{x.detach()};
        DLManagedTensor* managed = nullptr;
        const nxd_status_t status = nxd_tensor_to_dlpack(&detached, &managed);
        if (managed) managed->deleter(managed);
        ok(status);
      });
    }
    read("parameter", "backward", [&](const at::Tensor& x, nxd_tensor_t*) {
      nxd_tensor loss{x.sum()};
      nxd_tensor_t* roots[] = {&loss};
      ok(nxd_backward(roots, nullptr, 1, 0));
    });
  });
}

// The caller may read values that come from its own constants alone.
void test_constants_are_readable(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const at::Tensor table = at::arange(6, at::kFloat);
    const Tree tree = make_tree(ctx, [&](nxd_module_t*, const Tensors& in) {
      const Tensor made = make_i64({2, 3}, {2});
      NXD_TEST_CHECK(item(Tensor(nxd::wrap(table.narrow(0, 5, 1))).get()) == 5);
      NXD_TEST_CHECK(made->value.sum().item<int64_t>() == 5);
      NXD_TEST_CHECK(at::ones({3}).sum().item<double>() == 3);
      // But its memory is not to be written where the trace would not see it.
      void* data = nullptr;
      NXD_TEST_REFUSED(nxd_tensor_get_data(made.get(), &data), NXD_ERROR_INVALID_STATE,
                       "Block at block: the forward takes the memory of a tensor");
      return Tensors{in[0] * table.sum()};
    });
    refused(NXD_ERROR_INVALID_STATE, "nxd_tensor_get_data",
            [&] { trace_of(tree.root, {rows(2, 2)}); });
  });
}

void test_unknown_operators(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const Tree tree =
        make_tree(ctx, [](nxd_module_t*, const Tensors& in) { return Tensors{in[0].to_sparse()}; });
    refused(NXD_ERROR_UNSUPPORTED, "Block at block: no shape function for operator aten::to_sparse",
            [&] { trace_of(tree.root, {rows(2, 4)}); });
    nxd_function_options_t options = NXD_FUNCTION_OPTIONS_INIT;
    options.name = "shapeless";
    options.forward = [](nxd_function_call_t*, nxd_tensor_t* const* in, size_t, nxd_tensor_t** out,
                         size_t, void*) { return nxd_tensor_retain(in[0], out); };
    nxd_function_t* function = nullptr;
    NXD_TEST_OK(nxd_function_create(&options, &function));
    const Tree other = make_tree(ctx, [&](nxd_module_t*, const Tensors& in) {
      nxd_tensor handle{in[0]};
      nxd_tensor_t* inputs[] = {&handle};
      nxd_tensor_t* out = nullptr;
      nxd::CallbackWatch().check(nxd_function_apply(function, inputs, 1, &out, 1), "apply");
      return Tensors{Tensor(out)->value};
    });
    refused(NXD_ERROR_UNSUPPORTED, "function shapeless: it has no shape callback",
            [&] { trace_of(other.root, {rows(2, 4)}); });
    nxd_function_destroy(function);
  });
}

// The CPU rejects these shapes, too, and a stride that nothing divides by.
void test_bad_shapes(void**) {
  using Call = at::Tensor(const at::Tensor& x);
  on_one_rank([](nxd_context_t* ctx) {
    const auto bad = [&](const std::string& part, const std::function<Call>& call) {
      const Tree tree =
          make_tree(ctx, [&](nxd_module_t*, const Tensors& in) { return Tensors{call(in[0])}; });
      refused(NXD_ERROR_INVALID_ARGUMENT, part, [&] { trace_of(tree.root, {rows(2, 4)}); });
    };
    bad("at least 3 dimen", [](const at::Tensor& x) { return at::layer_norm(x, {5, 2, 4}); });
    bad("input: expected at least 1 dimension",
        [](const at::Tensor& x) { return at::cross_entropy_loss(x.sum(), x.sum()); });
    bad("stride", [](const at::Tensor& x) {
      return at::conv1d(x.view({1, 2, 4}), x.view({2, 2, 2}), {}, 0);
    });
  });
}

void test_bad_calls(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const Tree tree = make_tree(
        ctx, [](nxd_module_t* self, const Tensors& in) { return call_child(self, "inner", in); });
    const Tensors in{rows(1, 2)};
    const auto bad = [&](const std::string& part, const TraceOptions& options) {
      refused(NXD_ERROR_INVALID_ARGUMENT, part, [&] { trace_of(tree.root, in, options); });
    };
    bad("leaf \"Blok\": Root has no module of this class; near names: Block", {{"Blok"}, {}, {}});
    bad("leaf \"block.iner\": Root has no module of this path; near names: block.inner",
        {{}, {"block.iner"}, {}});
    bad("input_names: expected 1 names, one for each input, got 2", {{}, {}, {"a", "b"}});
    bad("input_names: \"\" is empty", {{}, {}, {""}});
    refused(NXD_ERROR_INVALID_ARGUMENT, "input_names: \"a\" is empty or given twice", [&] {
      trace_of(tree.root, {in[0], in[0]}, {{}, {}, {"a", "a"}});
    });
    refused(NXD_ERROR_INVALID_ARGUMENT, "root: expected a module",
            [&] { nxd::trace(nullptr, in, 1, {}); });
    const Module nested = make_module(ctx, "Nested", [&](nxd_module_t*, const Tensors& given) {
      trace_of(tree.root, given);
      return given;
    });
    refused(NXD_ERROR_INVALID_STATE, "tracing already", [&] { trace_of(nested, in); });
    // After all these no trace watches this thread.
    NXD_TEST_CHECK(!nxd::is_tracing());
    NXD_TEST_CHECK(tree.root->value->call(in)[0].is_cpu());
  });
}

void test_leaves(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const Tree tree = make_tree(ctx, [](nxd_module_t* self, const Tensors& in) {
      return call_child(self, "inner", {call_child(self, "inner", in)[0] + 1});
    });
    const auto nodes = [&](const TraceOptions& options) {
      std::string names;
      for (const nxd::GraphNode& node : trace_of(tree.root, {rows(1, 2)}, options).nodes) {
        names += node.name + " ";
      }
      return names;
    };
    NXD_TEST_CHECK(nodes({}) == "input_0 block.inner aten::add.Scalar block.inner ");
    NXD_TEST_CHECK(nodes({{"Block"}, {}, {}}) == "input_0 block ");
    NXD_TEST_CHECK(nodes({{}, {"block"}, {}}) == "input_0 block ");
    // A root without children is entered all the same.
    NXD_TEST_CHECK(
        trace_of(make_module(ctx, "Sine",
                             [](nxd_module_t*, const Tensors& in) { return Tensors{in[0].sin()}; }),
                 {rows(1, 2)})
            .nodes[1]
            .name == "aten::sin");
  });
}

using Operator = std::function<Tensors(const Tensors&)>;

// On the meta device an operator gives what ATen gives on the CPU: the same shapes and dtypes, and
// gradients where it has them.
void check_operator(nxd_context_t* ctx, const char* name, const Tensors& inputs,
                    const Operator& op) {
  Tensors want;
  const Module module = make_module(ctx, name, [&](nxd_module_t* self, const Tensors& in) {
    Tensors given = in;
    const at::Tensor one = parameter_of(self, "one");
    for (at::Tensor& x : given) x = x.is_floating_point() ? x * one : x;
    return op(given);
  });
  add_parameter(module, "one", {1});
  const Tensors real = module->value->call(inputs, op(inputs).size());
  const Graph graph = trace_of(module, inputs, {}, real.size());
  for (size_t i = 0; i < real.size(); ++i) {
    const nxd::GraphValue& value = graph.values[static_cast<size_t>(graph.outputs[i])];
    if (at::IntArrayRef(value.shape) != real[i].sizes() || value.dtype != real[i].scalar_type() ||
        value.needs_grad != real[i].requires_grad()) {
      nxd_test_fail(__FILE__, __LINE__, "%s: result %zu", name, i);
    }
  }
}

#define OPERATOR(inputs, expression) \
  check_operator(ctx, #expression, inputs, [](const Tensors& x) { return Tensors{expression}; })
#define OPERATORS(inputs, expression)                             \
  check_operator(ctx, #expression, inputs, [](const Tensors& x) { \
    const auto r = expression;                                    \
    return Tensors{std::get<0>(r), std::get<1>(r)};               \
  })

void test_shape_functions(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const at::Tensor a = at::rand({4, 6}), b = at::rand({4, 6}), v = at::rand({6});
    const at::Tensor cube = at::rand({2, 4, 6}), ids = at::arange(3), bits = a.gt(0.5);
    const at::Tensor image = at::rand({2, 4, 8, 8}), kernel = at::rand({4, 2, 3, 3});
    const at::Tensor whole = at::arange(24).view({4, 6}), classes = at::arange(4);
    const Tensors ab{a, b}, av{a, v};
    OPERATOR(ab, x[0].abs());
    OPERATOR(ab, (x[0] * 1).abs_());
    OPERATOR(ab, at::addbmm(at::ones({4, 4}), x[0].view({1, 4, 6}), x[1].view({1, 6, 4})));
    OPERATOR(ab, at::binary_cross_entropy(x[0].sigmoid(), x[1].detach().sigmoid()));
    OPERATOR(ab, at::binary_cross_entropy(x[0].sigmoid(), x[1].detach().sigmoid(), {}, 0));
    OPERATOR((Tensors{image}), at::channel_shuffle(x[0], 2));
    OPERATOR((Tensors{image, kernel}), at::conv2d(x[0], x[1], {}, 2, 1, 1, 2));
    OPERATOR((Tensors{image, kernel}),
             at::convolution(x[0], x[1], {}, {1, 2}, {0, 2}, {2, 1}, false, {0, 0}, 2));
    // As a traced TorchScript module calls it.
    OPERATOR((Tensors{image, kernel}),
             at::_convolution(x[0], x[1], {}, {1, 2}, {0, 2}, {2, 1}, false, {0, 0}, 2, false,
                              false, true, true));
    OPERATOR((Tensors{image, kernel}), at::conv_transpose2d(x[0], x[1], {}, 2, 1, 1, 2, 1));
    OPERATOR((Tensors{cube, at::rand({6, 2, 3})}), at::conv1d(x[0], x[1], {}, 1, 1, 1, 2));
    OPERATOR(ab, x[0].count_nonzero());
    OPERATOR(ab, x[0].count_nonzero(at::IntArrayRef{1}));
    OPERATOR((Tensors{a, classes}), at::cross_entropy_loss(x[0], x[1]));
    OPERATOR((Tensors{a, classes}), at::cross_entropy_loss(x[0], x[1], {}, 0, -100, 0.1));
    OPERATOR(ab, at::cross_entropy_loss(x[0], x[1].softmax(1), {}, 1, -100, 0.1));
    OPERATOR(av, at::diag(x[1], -2));
    OPERATOR(av, at::diag(x[0], 3));
    OPERATOR((Tensors{v, v}), at::dot(x[0], x[1]));
    OPERATOR((Tensors{a, ids}), at::embedding(x[0], x[1]));
    OPERATOR(ab, x[0].flip({1}));
    OPERATOR(ab, at::hardswish(x[0]));
    OPERATOR(ab, at::relu6(x[0]));
    OPERATOR(ab, at::huber_loss(x[0], x[1]));
    OPERATOR((Tensors{a, v}), at::huber_loss(x[0], x[1], 0));
    OPERATOR((Tensors{a, ids}), x[0].index_select(0, x[1]));
    OPERATOR(ab, at::isnan(x[0]));
    OPERATOR(ab, at::isfinite(x[0]));
    OPERATOR(ab, at::log_sigmoid(x[0]));
    OPERATOR((Tensors{bits, bits.select(0, 0)}), x[0].logical_and(x[1]));
    OPERATOR((Tensors{bits, bits}), x[0].clone().logical_or_(x[1]));
    OPERATOR((Tensors{a, bits}), x[0].logical_xor(x[1]).logical_not());
    OPERATOR(ab, at::logit(x[0], 0.1));
    OPERATOR(ab, x[0].logsumexp(1));
    OPERATOR(ab, x[0].max());
    OPERATOR(ab, x[0].median());
    OPERATOR((Tensors{whole}), x[0].min());
    OPERATOR(ab, at::nan_to_num(x[0]));
    OPERATOR(ab, x[0].nansum(at::IntArrayRef{1}, true));
    OPERATOR((Tensors{image}), at::batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, false));
    OPERATOR((Tensors{image}), at::group_norm(x[0], 2));
    OPERATOR(av, at::layer_norm(x[0], {6}, x[1], x[1]));
    OPERATORS(av, at::native_layer_norm(x[0], {6}, x[1], x[1], 1e-5));
    OPERATORS(ab, at::native_dropout(x[0], 0.5, true));
    OPERATOR(ab, at::dropout(x[0], 0.5, true));
    OPERATOR((Tensors{image, image.select(1, 0).to(at::kLong)}),
             at::nll_loss2d(x[0].log_softmax(1), x[1]));
    OPERATOR((Tensors{ids}), at::one_hot(x[0], 5));
    OPERATOR(av, at::prelu(x[0], x[1]));
    OPERATOR((Tensors{whole}), x[0].prod());
    OPERATOR(ab, x[0].prod(at::kDouble));
    OPERATOR(ab, at::relu(x[0]));
    OPERATOR(ab, (x[0] * 2).relu_());
    OPERATOR(ab, x[0].repeat_interleave(2, -1));
    OPERATOR(ab, x[0].repeat_interleave(3));
    OPERATOR(ab, x[0].roll(1, 0));
    OPERATOR(ab, x[0].std(-1, true, true));
    OPERATOR(ab, x[0].std(true));
    OPERATORS(ab, at::std_mean(x[0], at::IntArrayRef{0}));
    OPERATOR((Tensors{a, ids}), x[0].take(x[1]));
    OPERATOR(ab, x[0].trace());
    OPERATOR(ab, x[0].var(at::IntArrayRef{0, 1}));
    OPERATORS(ab, at::var_mean(x[0], at::IntArrayRef{1}, 1, true));
    OPERATOR((Tensors{bits, a, v}), at::where(x[0], x[1], x[2]));
    OPERATOR((Tensors{bits, a}), at::where(x[0], x[1], 0.0));
    OPERATOR((Tensors{image}), at::adaptive_avg_pool2d(x[0], {2, 3}));
    OPERATOR((Tensors{a, v.to(at::kDouble)}), 2 * x[0] + x[1]);
    OPERATOR((Tensors{whole}), 0.5 * x[0] + 1);
    OPERATOR(ab, x[0].to(at::Device(at::kCPU)).contiguous());
    OPERATOR(ab, at::ones({2}, x[0].options()) + x[0].sum());
  });
}

// Operators that libtorch cannot run without data, and that have no shape function: a trial on the
// CPU gives the shapes, also of those that such an operator calls, and gradients of complex
// numbers.
void test_tried_operators(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const at::Tensor a = at::rand({4, 6}), b = at::rand({4, 6}), square = at::rand({2, 3, 3});
    const at::Tensor image = at::rand({2, 4, 8, 8}), ids = at::arange(6).remainder(4);
    const at::Tensor starts = at::tensor({0, 2, 5}), lengths = at::tensor({4, 3});
    const Tensors ab{a, b};
    OPERATOR(ab, at::fft_rfft(x[0]));
    OPERATOR(ab, at::real(at::fft_fft(at::fft_fft(x[0], {}, -1), {}, 0)));
    OPERATOR(ab, at::fft_irfft(at::fft_rfft(x[0].t()) * 2, 5).transpose(0, 1));
    OPERATOR(ab, at::real(at::exp(at::complex(x[0], x[1]))));
    OPERATORS(ab, at::cummax(x[0], 1));
    OPERATOR(ab, at::tril_indices(4, 3, -1, x[0].options().dtype(at::kLong)));
    OPERATOR(ab, at::cdist(x[0], x[1]));
    OPERATOR(ab, x[0].sigmoid().index_fill_(1, at::zeros({2}, at::kLong), 0.5));
    OPERATOR(ab, (x[0] * 1).put_(at::zeros({2}, at::kLong), x[1].select(0, 0).narrow(0, 0, 2)));
    OPERATOR((Tensors{square}), at::linalg_matrix_exp(x[0]));
    OPERATOR((Tensors{image}), at::max_pool3d(x[0], {2, 2, 2}));
    OPERATOR((Tensors{image}),
             at::grid_sampler(x[0], x[0].narrow(1, 0, 2).permute({0, 2, 3, 1}), 0, 0, false));
    OPERATOR((Tensors{a, ids, starts}), std::get<0>(at::embedding_bag(x[0], x[1], x[2])));
    OPERATOR((Tensors{at::rand({5, 2, 4}), ids.view({2, 3}), lengths}),
             at::ctc_loss(x[0].log_softmax(2), x[1], x[2], x[2] - 1));
  });
}

// The product counts of a model: those of one forward, as nxd_model_get_step_flops counts a step.
void test_costs(void**) {
  const LlamaOracle oracle;
  const nlohmann::json config = nlohmann::json::parse(oracle.config);
  on_one_rank([&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, Layout{1});
    const at::Tensor ids = at::zeros({2, 16}, at::kLong);
    double want = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(model.get(), 2, 16, &want));
    // A step is three forwards; scores are counted whole here, and half there, as they are causal.
    const double heads = config["num_attention_heads"], hidden = config["hidden_size"];
    const double layers = config["num_hidden_layers"];
    const double head_dim = config.value("head_dim", hidden / heads);
    want = want / 3 + layers * 2 * 2 * 16 * 16 * heads * head_dim;
    for (const TraceOptions& options :
         {TraceOptions{}, TraceOptions{{"LlamaDecoderLayer"}, {}, {}}}) {
      const Graph graph = trace_of(model, {ids, ids}, options);
      double flops = 0, costs = 0;
      for (const nxd::GraphNode& node : graph.nodes) flops += node.flops;
      for (const double cost : nxd::node_costs(graph)) costs += cost;
      if (flops != want) nxd_test_fail(__FILE__, __LINE__, "%.17g, not %.17g", flops, want);
      NXD_TEST_CHECK(costs > flops && costs < 1.2 * flops);
    }
  });
}

void test_written_files(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const Graph graph =
        trace_of(make_module(ctx, "Sine",
                             [](nxd_module_t*, const Tensors& in) { return Tensors{in[0].sin()}; }),
                 {rows(1, 2)});
    const TempDir directory;
    const std::string text = directory.path() + "/graph.txt", dot = directory.path() + "/graph.dot";
    nxd::write_graph(graph, text);
    nxd::write_graph(graph, dot);
    NXD_TEST_CHECK(read_file(text) == graph.to_text());
    NXD_TEST_CHECK(read_file(dot) == graph.to_dot());
    refused(NXD_ERROR_IO, "no/such", [&] { nxd::write_graph(graph, "/no/such/place.txt"); });
  });
}

// A trace keeps nothing but what the graph has.
void test_nothing_is_kept(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    std::weak_ptr<nxd::Module> module;
    c10::weak_intrusive_ptr<c10::TensorImpl> constant(
        c10::intrusive_ptr<c10::TensorImpl>(at::ones({2}).unsafeReleaseIntrusivePtr()));
    {
      const at::Tensor held = at::ones({2});
      constant = c10::weak_intrusive_ptr<c10::TensorImpl>(held.getIntrusivePtr());
      const Tree tree = make_tree(ctx, [held](nxd_module_t* self, const Tensors& in) {
        return Tensors{call_child(self, "inner", in)[0] * held};
      });
      module = tree.root->value;
      const Graph graph = trace_of(tree.root, {rows(1, 2)});
      NXD_TEST_CHECK(graph.nodes.size() == 4);
    }
    NXD_TEST_CHECK(module.expired());
    NXD_TEST_CHECK(constant.expired());
  });
}

// A trace stands for a run on the device of its inputs, which has lists of casts of its own.
void test_casts_are_those_of_the_inputs_device(void**) {
  nxd::use_xla_device();
  on_one_rank([](nxd_context_t* ctx) {
    const Module module = make_module(ctx, "Relu", [](nxd_module_t*, const Tensors& in) {
      return Tensors{op_call("relu", "", in)};
    });
    const auto relu_of = [&](const at::Device& device) {
      nxd::set_autocast(NXD_DTYPE_BF16);
      const Graph graph = trace_of(module, {rows(2, 3).to(device)});
      nxd::set_autocast(NXD_DTYPE_INVALID);
      return graph.to_text();
    };
    NXD_TEST_CHECK(relu_of(at::kCPU).find("\nrelu: f32[2, 3] = ") != std::string::npos);
    NXD_TEST_CHECK(relu_of({at::kXLA, 0}).find("\nrelu: bf16[2, 3] = ") != std::string::npos);
  });
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_llama_text),
      cmocka_unit_test(test_nothing_is_communicated),
      cmocka_unit_test(test_reads_are_refused),
      cmocka_unit_test(test_constants_are_readable),
      cmocka_unit_test(test_unknown_operators),
      cmocka_unit_test(test_bad_shapes),
      cmocka_unit_test(test_bad_calls),
      cmocka_unit_test(test_leaves),
      cmocka_unit_test(test_shape_functions),
      cmocka_unit_test(test_tried_operators),
      cmocka_unit_test(test_costs),
      cmocka_unit_test(test_casts_are_those_of_the_inputs_device),
      cmocka_unit_test(test_written_files),
      cmocka_unit_test(test_nothing_is_kept),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
