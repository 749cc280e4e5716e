// Automatic casts: each list of operators against explicit casts of their arguments, and layers in
// F32 against the same layers in BF16, bit for bit.
#include <deque>
#include <map>
#include <thread>

#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// A scope with automatic casts; gives the setting back as it was.
class Autocast {
 public:
  explicit Autocast(nxd_dtype_t dtype = NXD_DTYPE_BF16) {
    NXD_TEST_OK(nxd_set_autocast(dtype, &previous_));
  }
  ~Autocast() { NXD_TEST_OK(nxd_set_autocast(previous_, nullptr)); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  nxd_dtype_t previous_ = NXD_DTYPE_INVALID;
};

nxd_dtype_t setting() {
  nxd_dtype_t now = NXD_DTYPE_F64;
  NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_INVALID, &now));
  NXD_TEST_OK(nxd_set_autocast(now, nullptr));
  return now;
}

bool same(const Tensor& a, const Tensor& b) {
  return a && b && a.dtype() == b.dtype() && a.shape() == b.shape() && values(a) == values(b);
}

// How a case's tensors are given: as they are, or cast before. The result stays alive.
using Give = std::function<const Tensor&(const Tensor&)>;

struct Case {
  const char* name;
  const char* overload;
  std::function<std::vector<Argument>(const Give&)> arguments;
};

Argument list_of(const char* name, std::vector<const Tensor*> tensors) {
  Argument argument(name, 0);
  argument.set = [tensors = std::move(tensors)](nxd_op_t* op, const char* arg) {
    std::vector<nxd_tensor_t*> handles;
    for (const Tensor* tensor : tensors) handles.push_back(tensor->get());
    return nxd_op_set_tensors(op, arg, handles.data(), handles.size());
  };
  return argument;
}

Tensor run(const Case& c, const std::function<Tensor(const Tensor&)>& give) {
  std::deque<Tensor> given;
  return op(c.name, c.overload, c.arguments([&](const Tensor& x) -> const Tensor& {
    given.push_back(give(x));
    return given.back();
  }));
}

Tensor as_it_is(const Tensor& x) { return x; }

// The result under automatic casts is that of explicit ones.
void check_list(const std::vector<Case>& cases, nxd_dtype_t dtype) {
  for (const Case& c : cases) {
    const Tensor want = run(c, [&](const Tensor& x) { return to(x, dtype); });
    const Autocast on;
    const Tensor got = run(c, as_it_is);
    if (!same(got, want) || got.dtype() != dtype) {
      nxd_test_fail(__FILE__, __LINE__, "%s: not what explicit casts give", c.name);
    }
  }
}

// Above 0 and below 1, for logarithms and for inverses of sines.
Tensor positive(const std::vector<int64_t>& shape, nxd_dtype_t dtype, int phase = 1) {
  const Tensor x = op("abs", {{"self", wave(shape, NXD_DTYPE_F32, phase)}});
  const Tensor lower = op("mul", "Scalar", {{"self", x}, {"other", 0.875}});
  return to(op("add", "Scalar", {{"self", lower}, {"other", 0.0625}}), dtype);
}

void lower_list(void**) {
  const Tensor a = wave({4, 6}, NXD_DTYPE_F32, 1), b = wave({6, 5}, NXD_DTYPE_BF16, 2);
  const Tensor c = wave({4, 5}, NXD_DTYPE_F32, 3), v = wave({6}, NXD_DTYPE_F32, 4);
  const Tensor u = wave({4}, NXD_DTYPE_F16, 5), w = wave({5, 6}, NXD_DTYPE_F32, 6);
  const Tensor bias = wave({5}, NXD_DTYPE_F32, 7);
  const Tensor batch_a = wave({2, 4, 6}, NXD_DTYPE_F32, 8);
  const Tensor batch_b = wave({2, 6, 5}, NXD_DTYPE_F32, 9);
  const Tensor batch_c = wave({2, 4, 5}, NXD_DTYPE_F32, 10);
  const Tensor image = wave({2, 3, 6, 6}, NXD_DTYPE_F32, 11);
  const Tensor kernel = wave({4, 3, 3, 3}, NXD_DTYPE_F32, 12);
  const Tensor signal = wave({2, 3, 9}, NXD_DTYPE_F32, 13);
  const Tensor filter = wave({4, 3, 3}, NXD_DTYPE_F32, 14);
  const Tensor volume = wave({1, 2, 4, 4, 4}, NXD_DTYPE_F32, 15);
  const Tensor cube = wave({3, 2, 2, 2, 2}, NXD_DTYPE_F32, 16);
  const Tensor slope = wave({1}, NXD_DTYPE_F32, 18);
  const std::vector<Case> cases = {
      {"matmul", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(a)}, {"other", g(b)}};
       }},
      {"mm", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(a)}, {"mat2", g(b)}};
       }},
      {"addmm", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(c)}, {"mat1", g(a)}, {"mat2", g(b)}};
       }},
      {"bmm", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(batch_a)}, {"mat2", g(batch_b)}};
       }},
      {"baddbmm", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(batch_c)}, {"batch1", g(batch_a)}, {"batch2", g(batch_b)}};
       }},
      {"addbmm", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(c)}, {"batch1", g(batch_a)}, {"batch2", g(batch_b)}};
       }},
      {"mv", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(a)}, {"vec", g(v)}};
       }},
      {"addmv", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(u)}, {"mat", g(a)}, {"vec", g(v)}};
       }},
      {"addr", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(a)}, {"vec1", g(u)}, {"vec2", g(v)}};
       }},
      {"linear", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"input", g(a)}, {"weight", g(w)}, {"bias", g(bias)}};
       }},
      {"conv1d", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"input", g(signal)}, {"weight", g(filter)}};
       }},
      {"conv2d", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"input", g(image)}, {"weight", g(kernel)}};
       }},
      {"conv3d", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"input", g(volume)}, {"weight", g(cube)}};
       }},
      {"prelu", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(a)}, {"weight", g(slope)}};
       }},
      {"einsum", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"equation", "ij,jk->ik"}, list_of("tensors", {&g(a), &g(b)})};
       }},
      {"chain_matmul", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {list_of("matrices", {&g(a), &g(b), &g(w)})};
       }},
      {"linalg_multi_dot", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {list_of("tensors", {&g(a), &g(b), &g(w)})};
       }},
  };
  check_list(cases, NXD_DTYPE_BF16);
}

void float_list(void**) {
  const Tensor x = positive({4, 6}, NXD_DTYPE_BF16), y = positive({4, 6}, NXD_DTYPE_BF16, 2);
  const Tensor half = positive({4, 6}, NXD_DTYPE_F16, 3);
  const Tensor weight = wave({6}, NXD_DTYPE_F32, 4), bias = wave({6}, NXD_DTYPE_BF16, 5);
  const Tensor ids = from_ints({0, 5, 2, 3}, {4});
  const Tensor signal = wave({2, 3, 9}, NXD_DTYPE_BF16, 6);
  const Tensor filter = wave({3, 4, 3}, NXD_DTYPE_F32, 7);
  std::vector<Case> cases;
  for (const char* name :
       {"exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh", "cosh",
        "tan", "asin", "acos", "erfinv", "softplus", "sum", "prod"}) {
    cases.push_back({name, "", [&](const Give& g) -> std::vector<Argument> {
                       return {{"self", g(x)}};
                     }});
  }
  cases.push_back({"exp", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"self", g(half)}};
                   }});
  for (const char* name : {"cumsum", "cumprod"}) {
    cases.push_back({name, "", [&](const Give& g) -> std::vector<Argument> {
                       return {{"self", g(x)}, {"dim", 1}};
                     }});
  }
  for (const char* name : {"softmax", "log_softmax"}) {
    cases.push_back({name, "int", [&](const Give& g) -> std::vector<Argument> {
                       return {{"self", g(x)}, {"dim", 1}};
                     }});
  }
  for (const char* name : {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
                           "binary_cross_entropy_with_logits", "soft_margin_loss"}) {
    cases.push_back({name, "", [&](const Give& g) -> std::vector<Argument> {
                       return {{"self", g(x)}, {"target", g(y)}};
                     }});
  }
  for (const char* name : {"cross_entropy_loss", "nll_loss", "multi_margin_loss"}) {
    cases.push_back({name, "", [&](const Give& g) -> std::vector<Argument> {
                       return {{"self", g(x)}, {"target", ids}};
                     }});
  }
  cases.push_back({"conv_transpose1d", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"input", g(signal)}, {"weight", g(filter)}};
                   }});
  cases.push_back({"pow", "Tensor_Scalar", [&](const Give& g) -> std::vector<Argument> {
                     return {{"self", g(x)}, {"exponent", 3.5}};
                   }});
  cases.push_back({"norm", "Scalar", [&](const Give& g) -> std::vector<Argument> {
                     return {{"self", g(x)}};
                   }});
  cases.push_back({"linalg_vector_norm", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"self", g(x)}};
                   }});
  cases.push_back({"dist", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"self", g(x)}, {"other", g(y)}};
                   }});
  cases.push_back({"cosine_similarity", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"x1", g(x)}, {"x2", g(y)}};
                   }});
  cases.push_back({"layer_norm", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"input", g(x)},
                             {"normalized_shape", std::vector<int64_t>{6}},
                             {"weight", g(weight)},
                             {"bias", g(bias)}};
                   }});
  cases.push_back({"group_norm", "", [&](const Give& g) -> std::vector<Argument> {
                     return {{"input", g(x)}, {"num_groups", 2}, {"weight", g(weight)}};
                   }});
  check_list(cases, NXD_DTYPE_F32);
}

void widest_list(void**) {
  const Tensor x = wave({3, 4}, NXD_DTYPE_F32, 1), y = wave({3, 4}, NXD_DTYPE_BF16, 2);
  const Tensor z = positive({3, 4}, NXD_DTYPE_BF16, 3), h = wave({3, 4}, NXD_DTYPE_F16, 4);
  const Tensor row = wave({4}, NXD_DTYPE_F32, 5), column = wave({4}, NXD_DTYPE_BF16, 6);
  const Tensor places = from_ints({0, 1, 2, 0, 2, 1, 0, 0, 1, 1, 2, 2}, {3, 4});
  const Tensor mask = op("gt", "Scalar", {{"self", x}, {"other", 0}});
  const std::vector<Case> cases = {
      {"addcmul", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(x)}, {"tensor1", g(y)}, {"tensor2", g(z)}};
       }},
      {"addcdiv", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(y)}, {"tensor1", g(x)}, {"tensor2", g(z)}};
       }},
      {"atan2", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(x)}, {"other", g(y)}};
       }},
      {"atan2", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(h)}, {"other", g(y)}};
       }},
      {"cat", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {list_of("tensors", {&g(y), &g(x)})};
       }},
      {"stack", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {list_of("tensors", {&g(y), &g(x)})};
       }},
      {"dot", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(row)}, {"tensor", g(column)}};
       }},
      {"scatter_add", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(x)}, {"dim", 0}, {"index", places}, {"src", g(y)}};
       }},
      {"tensordot", "",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"self", g(x)},
                 {"other", g(column)},
                 {"dims_self", std::vector<int64_t>{1}},
                 {"dims_other", std::vector<int64_t>{0}}};
       }},
      {"where", "self",
       [&](const Give& g) -> std::vector<Argument> {
         return {{"condition", mask}, {"self", g(x)}, {"other", g(y)}};
       }},
  };
  check_list(cases, NXD_DTYPE_F32);
  // Operands of one 16-bit dtype stay in it.
  const Autocast on;
  const Tensor narrow = op("addcmul", {{"self", y}, {"tensor1", z}, {"tensor2", z}});
  assert_int_equal(narrow.dtype(), NXD_DTYPE_BF16);
}

void what_is_never_cast(void**) {
  const Tensor x = wave({4, 4}, NXD_DTYPE_F32, 1), b = positive({4, 4}, NXD_DTYPE_BF16);
  const Tensor wide = wave({4, 4}, NXD_DTYPE_F64, 2), ids = from_ints({1, 2, 3}, {3});
  const Tensor product = op("matmul", {{"self", wide}, {"other", wide}});
  const Autocast on;
  assert_true(same(op("matmul", {{"self", wide}, {"other", wide}}), product));
  assert_int_equal(op("exp", {{"self", wide}}).dtype(), NXD_DTYPE_F64);
  assert_int_equal(op("sum", "", {{"self", ids}}).dtype(), NXD_DTYPE_I64);
  assert_int_equal(op("relu", {{"self", x}}).dtype(), NXD_DTYPE_F32);
  assert_int_equal(op("gelu", {{"self", b}}).dtype(), NXD_DTYPE_BF16);
  assert_int_equal(op("add", "Tensor", {{"self", b}, {"other", b}}).dtype(), NXD_DTYPE_BF16);
  // Operators that write to an argument write to that one.
  Tensor out = op("clone", {{"self", b}});
  const Tensor want = to(op("exp", {{"self", b}}), NXD_DTYPE_BF16);
  assert_int_equal(op("exp_", {{"self", out}}).dtype(), NXD_DTYPE_BF16);
  assert_true(same(out, want));
  assert_true(same(op("exp", "out", {{"self", b}, {"out", out}}), want));
}

void gradients_have_the_dtype_of_their_leaf(void**) {
  const Tensor a = wave({4, 6}, NXD_DTYPE_F32, 1), b = wave({6, 5}, NXD_DTYPE_F32, 2);
  const auto product_gradient = [&](bool automatic) {
    const Tensor x = leaf(a, NXD_DTYPE_F32, true), w = leaf(b, NXD_DTYPE_F32, true);
    Tensor loss;
    if (automatic) {
      const Autocast on;
      loss = op("sum", "", {{"self", op("matmul", {{"self", x}, {"other", w}})}});
      backward(loss);
    } else {
      const Tensor lx = to(x, NXD_DTYPE_BF16), lw = to(w, NXD_DTYPE_BF16);
      const Tensor y = to(op("matmul", {{"self", lx}, {"other", lw}}), NXD_DTYPE_F32);
      loss = op("sum", "", {{"self", y}});
      backward(loss);
    }
    return std::pair(x.grad(), w.grad());
  };
  const auto got = product_gradient(true), want = product_gradient(false);
  assert_int_equal(got.first.dtype(), NXD_DTYPE_F32);
  assert_true(same(got.first, want.first));
  assert_true(same(got.second, want.second));
}

void settings(void**) {
  assert_int_equal(setting(), NXD_DTYPE_INVALID);
  const Tensor x = wave({4, 4}, NXD_DTYPE_F32, 1);
  const auto product = [&] { return op("mm", {{"self", x}, {"mat2", x}}); };
  {
    const Autocast outer;
    assert_int_equal(setting(), NXD_DTYPE_BF16);
    {
      const Autocast off(NXD_DTYPE_INVALID);
      assert_int_equal(product().dtype(), NXD_DTYPE_F32);
      const Autocast inner;
      assert_int_equal(product().dtype(), NXD_DTYPE_BF16);
    }
    assert_int_equal(product().dtype(), NXD_DTYPE_BF16);
    nxd_dtype_t elsewhere = NXD_DTYPE_F64;
    std::thread([&] { elsewhere = setting(); }).join();
    assert_int_equal(elsewhere, NXD_DTYPE_INVALID);
  }
  assert_int_equal(product().dtype(), NXD_DTYPE_F32);

  nxd_dtype_t previous = NXD_DTYPE_I8;
  const Autocast on;
  for (const int bad : {0, 1, 3, 9, 1234, -2}) {
    NXD_TEST_REFUSED(nxd_set_autocast(static_cast<nxd_dtype_t>(bad), &previous),
                     NXD_ERROR_INVALID_ARGUMENT, "dtype: expected NXD_DTYPE_BF16");
  }
  assert_int_equal(previous, NXD_DTYPE_I8);
  assert_int_equal(setting(), NXD_DTYPE_BF16);
}

struct Layer {
  const char* name;
  std::vector<int64_t> input;  // of each of two ranks
  std::function<nxd_status_t(nxd_context_t*, nxd_dtype_t, nxd_module_t**)> create;
};

template <class Options>
Options options_of(Options options, nxd_dtype_t dtype, bool sequence_parallel) {
  options.dtype = dtype;
  options.sequence_parallel = sequence_parallel;
  return options;
}

std::vector<Layer> product_layers(bool slices) {
  const auto column = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    const auto o = options_of<nxd_linear_options_t>(NXD_LINEAR_OPTIONS_INIT, dtype, slices);
    return nxd_layer_create_column_parallel_linear(ctx, 16, 8, &o, out);
  };
  const auto row = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    auto o = options_of<nxd_linear_options_t>(NXD_LINEAR_OPTIONS_INIT, dtype, slices);
    o.input_is_parallel = 1;
    return nxd_layer_create_row_parallel_linear(ctx, 16, 8, &o, out);
  };
  const auto plain = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    const auto o = options_of<nxd_linear_options_t>(NXD_LINEAR_OPTIONS_INIT, dtype, slices);
    return nxd_layer_create_linear(ctx, 16, 8, &o, out);
  };
  const auto mlp = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    const auto o = options_of<nxd_mlp_options_t>(NXD_MLP_OPTIONS_INIT, dtype, slices);
    return nxd_layer_create_gated_mlp(ctx, 16, 24, &o, out);
  };
  const auto attention = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    auto o = options_of<nxd_attention_options_t>(NXD_ATTENTION_OPTIONS_INIT, dtype, slices);
    o.num_kv_heads = 2;
    return nxd_layer_create_attention(ctx, 16, 4, &o, out);
  };
  const std::vector<int64_t> whole{slices ? 2 : 4, 3, 16};
  return {{"column", whole, column},
          {"row", {4, 3, 8}, row},
          {"linear", whole, plain},
          {"gated MLP", whole, mlp},
          {"attention", whole, attention}};
}

// The output of a layer and the gradients that it leaves, all widened to F32.
struct Results {
  Tensor y, dx;
  std::map<std::string, Tensor> dw;
};

Results run_layer(const Module& layer, const Tensor& x, bool automatic) {
  Results r;
  const Tensor in = leaf(x, x.dtype(), true);
  {
    const Autocast set(automatic ? NXD_DTYPE_BF16 : NXD_DTYPE_INVALID);
    r.y = layer({in});
    backward(r.y, wave(r.y.shape(), r.y.dtype(), 9));
  }
  r.dx = in.grad();
  for (const auto& [name, parameter] : layer.parameters()) {
    nxd_tensor_t* value = nullptr;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &value));
    Tensor grad;
    NXD_TEST_OK(nxd_tensor_share_grad(value, grad.out()));
    r.dw[name] = grad;
  }
  return r;
}

void check_product_layer(nxd_context_t* ctx, const Layer& layer) {
  Module wide, narrow;
  NXD_TEST_OK(layer.create(ctx, NXD_DTYPE_F32, wide.out()));
  NXD_TEST_OK(layer.create(ctx, NXD_DTYPE_BF16, narrow.out()));
  const auto from = wide.parameters(), into = narrow.parameters();
  for (size_t i = 0; i < from.size(); ++i) {
    const Tensor value = to(leaf(whole(from[i].second), NXD_DTYPE_F32, false), NXD_DTYPE_BF16);
    NXD_TEST_OK(nxd_parameter_set_full(into[i].second, value.get()));
  }
  const Tensor x = wave(layer.input, NXD_DTYPE_F32, 1), low = to(x, NXD_DTYPE_BF16);
  const Results want = run_layer(narrow, low, false);
  for (const Tensor& input : {x, low}) {
    NXD_TEST_OK(nxd_module_zero_grad(wide.get()));
    const Results got = run_layer(wide, input, true);
    const bool equal = same(got.y, want.y) && got.dx.dtype() == input.dtype() &&
                       same(to(got.dx, NXD_DTYPE_BF16), want.dx);
    if (!equal) nxd_test_fail(__FILE__, __LINE__, "%s: not the layer in BF16", layer.name);
    for (const auto& [name, grad] : got.dw) {
      if (same(grad, to(want.dw.at(name), NXD_DTYPE_F32))) continue;
      nxd_test_fail(__FILE__, __LINE__, "%s: gradient of %s", layer.name, name.c_str());
    }
  }
  {
    const Autocast on;
    if (!same(narrow({x}), want.y)) {
      nxd_test_fail(__FILE__, __LINE__, "%s: in BF16, given F32", layer.name);
    }
  }
  // Without casts a layer takes its own dtype only.
  nxd_tensor_t* inputs[] = {low.get()};
  Tensor y;
  NXD_TEST_REFUSED(nxd_module_forward(wide.get(), inputs, 1, y.out(), 1),
                   NXD_ERROR_INVALID_ARGUMENT, "dtype");
  // F64 is left alone.
  Module exact;
  NXD_TEST_OK(layer.create(ctx, NXD_DTYPE_F64, exact.out()));
  const Tensor x64 = wave(layer.input, NXD_DTYPE_F64, 1), plain = exact({x64});
  const Autocast on;
  NXD_TEST_CHECK(same(exact({x64}), plain));
  NXD_TEST_REFUSED(nxd_module_forward(exact.get(), inputs, 1, y.out(), 1),
                   NXD_ERROR_INVALID_ARGUMENT, "dtype");
}

void product_layers_on_two_ranks(void**) {
  for (const bool plain : {false, true}) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.plain_kernels = plain;
    nxd_test_run_ranks_with(
        &options, 2, 2,
        [](nxd_context_t* ctx, int, int, void*) {
          for (const bool slices : {false, true}) {
            for (const Layer& layer : product_layers(slices)) check_product_layer(ctx, layer);
          }
        },
        nullptr);
  }
}

// Gathered rows get a bias of all features outside of the product, in its dtype.
void gathered_bias(nxd_context_t* ctx, int, int, void*) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_ON;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 16, 8, &options, layer.out()));
  const Autocast on;
  NXD_TEST_CHECK(layer({wave({4, 16}, NXD_DTYPE_F32, 1)}).dtype() == NXD_DTYPE_BF16);
}

// Norms widen what they are given, and their sums with residuals.
void norms(nxd_context_t* ctx, int, int, void*) {
  const nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
  Module layers[2];
  NXD_TEST_OK(nxd_layer_create_rms_norm(ctx, 12, &options, layers[0].out()));
  NXD_TEST_OK(nxd_layer_create_layer_norm(ctx, 12, &options, layers[1].out()));
  const Tensor x = wave({3, 12}, NXD_DTYPE_BF16, 1), residual = wave({3, 12}, NXD_DTYPE_F32, 2);
  for (const Module& layer : layers) {
    const Tensor alone = layer({to(x, NXD_DTYPE_F32)});
    const Tensor summed = layer({to(x, NXD_DTYPE_F32), residual});
    {
      const Autocast on;
      NXD_TEST_CHECK(same(layer({x}), alone));
      NXD_TEST_CHECK(same(layer({x, residual}), summed));
    }
    nxd_tensor_t* inputs[] = {x.get()};
    Tensor y;
    NXD_TEST_REFUSED(nxd_module_forward(layer.get(), inputs, 1, y.out(), 1),
                     NXD_ERROR_INVALID_ARGUMENT, "dtype");
  }
}

// A backward pass sees no casts, and leaves the setting of its thread as it was.
void backward_is_outside(nxd_context_t* ctx, int, int, void*) {
  const nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 16, 8, &options, layer.out()));
  nxd_dtype_t seen = NXD_DTYPE_F64;
  const auto look = [](nxd_parameter_t*, void* user_data) -> nxd_status_t {
    *static_cast<nxd_dtype_t*>(user_data) = setting();
    return NXD_OK;
  };
  NXD_TEST_OK(nxd_parameter_set_grad_hook(layer.parameters()[0].second, look, &seen, nullptr));
  const Autocast on;
  const Tensor x = wave({4, 16}, NXD_DTYPE_F32, 1), y = layer({x});
  backward(y, wave(y.shape(), NXD_DTYPE_BF16, 2));
  NXD_TEST_CHECK(seen == NXD_DTYPE_INVALID);
  NXD_TEST_CHECK(setting() == NXD_DTYPE_BF16);

  seen = NXD_DTYPE_F64;
  nxd_tensor_t* inputs[] = {x.get()};
  Tensor z;
  nxd_tape_t* tape = nullptr;
  NXD_TEST_OK(nxd_module_forward_tape(layer.get(), inputs, 1, z.out(), 1, &tape));
  NXD_TEST_CHECK(z.dtype() == NXD_DTYPE_BF16);
  nxd_tensor_t* grads[] = {z.get()};
  Tensor dx;
  NXD_TEST_OK(nxd_tape_backward(tape, grads, 1, dx.out(), 1));
  nxd_tape_destroy(tape);
  NXD_TEST_CHECK(dx.dtype() == NXD_DTYPE_F32);
  NXD_TEST_CHECK(seen == NXD_DTYPE_INVALID);
  NXD_TEST_CHECK(setting() == NXD_DTYPE_BF16);
}

void other_layers(void**) {
  nxd_test_run_ranks(2, 2, gathered_bias, nullptr);
  nxd_test_run_ranks(1, 1, norms, nullptr);
  nxd_test_run_ranks(1, 1, backward_is_outside, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lower_list),
      cmocka_unit_test(float_list),
      cmocka_unit_test(widest_list),
      cmocka_unit_test(what_is_never_cast),
      cmocka_unit_test(gradients_have_the_dtype_of_their_leaf),
      cmocka_unit_test(settings),
      cmocka_unit_test(product_layers_on_two_ranks),
      cmocka_unit_test(other_layers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
