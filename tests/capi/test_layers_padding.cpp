// nxd_pad_model: models of the caller's own layers whose heads ranks do not divide. Padded, on any
// layout, they train as one rank does without padding, and save what it saves.
#include <algorithm>
#include <fstream>

#include "support/larger_error.h"
#include "support/temp_dir.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

Tensor mul(const Tensor& a, const Tensor& b) {
  return op("mul", "Tensor", {{"self", a}, {"other", b}});
}

nxd_linear_options_t split_options() {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_OFF;
  options.input_is_parallel = 1;
  return options;
}

// ---- An attention of the caller's: heads of the layers' outputs, softmax, a gate that makes of a
// zero something else, and the layer that brings heads together.

constexpr int64_t kHidden = 12, kHeads = 3, kHeadDim = 4;

struct Heads {
  int64_t own = 0;  // this rank's, as the hook or the layout says
};

Tensor linear_of(nxd_module_t* self, const char* name, const Tensor& x) {
  nxd_module_t* layer = nullptr;
  Tensor y;
  nxd_tensor_t* const in = x.get();
  if (NXD_TEST_OK(nxd_module_find_module(self, name, &layer))) {
    NXD_TEST_OK(nxd_module_forward(layer, &in, 1, y.out(), 1));
  }
  return y;
}

nxd_status_t attend(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t, nxd_tensor_t** outputs,
                    size_t, void* user_data) {
  const auto& heads = *static_cast<const Heads*>(user_data);
  Tensor x;
  NXD_TEST_OK(nxd_tensor_retain(inputs[0], x.out()));
  const int64_t batch = x.shape()[0], length = x.shape()[1];
  const auto split = [&](const Tensor& y) {  // [batch, heads, length, head_dim]
    const Tensor parts = op(
        "view", {{"self", y}, {"size", std::vector<int64_t>{batch, length, heads.own, kHeadDim}}});
    return op("transpose", "int", {{"self", parts}, {"dim0", 1}, {"dim1", 2}});
  };
  const Tensor q = split(linear_of(self, "q", x)), k = split(linear_of(self, "k", x)),
               v = split(linear_of(self, "v", x));
  const Tensor scores =
      op("matmul",
         {{"self", q}, {"other", op("transpose", "int", {{"self", k}, {"dim0", 2}, {"dim1", 3}})}});
  const Tensor mixed =
      op("matmul", {{"self", op("softmax", "int", {{"self", scores}, {"dim", 3}})}, {"other", v}});
  // Not zero for a head of zeros, and infinite in its backward.
  const Tensor gated = op("add", "Tensor",
                          {{"self", op("sigmoid", {{"self", mixed}})},
                           {"other", op("sqrt", {{"self", mul(mixed, mixed)}})},
                           {"alpha", 0.125}});
  const Tensor back = op("transpose", "int", {{"self", gated}, {"dim0", 1}, {"dim1", 2}});
  const Tensor rows =
      op("reshape",
         {{"self", back}, {"shape", std::vector<int64_t>{batch, length, heads.own * kHeadDim}}});
  *outputs = nullptr;
  NXD_TEST_OK(nxd_tensor_retain(linear_of(self, "o", rows).get(), outputs));
  return *outputs ? NXD_OK : NXD_ERROR_USER;
}

nxd_status_t count_heads(nxd_module_t* module, int64_t num_heads, int64_t padded, void* user_data) {
  const char* name = nullptr;
  NXD_TEST_OK(nxd_module_get_class_name(module, &name));
  if (std::string(name) != "MyAttention") return NXD_OK;
  NXD_TEST_CHECK(num_heads == kHeads);
  static_cast<Heads*>(user_data)->own = padded;
  return NXD_OK;
}

struct Kind {
  nxd_dtype_t dtype = NXD_DTYPE_F64;
  nxd_device_t device = NXD_DEVICE_CPU;
  int padded = 0;  // the tp_degree; 0: none
  bool defer = false;
  int zero_copies = 0;  // data-parallel copies with ZeRO-1; 0: no ddp
};

Module attention_model(nxd_context_t* ctx, const Kind& kind, Heads& heads) {
  nxd_linear_options_t options = split_options();
  options.dtype = kind.dtype;
  options.device = kind.defer ? NXD_DEVICE_META : NXD_DEVICE_CPU;
  Module attention, root;
  NXD_TEST_OK(nxd_module_create(ctx, "MyAttention", attend, &heads, nullptr, attention.out()));
  for (const char* name : {"q", "k", "v", "o"}) {
    Module layer;
    // A bias of keys has no gradient but noise, of which AdamW makes whole steps.
    options.bias = *name == 'k' ? NXD_TOGGLE_OFF : NXD_TOGGLE_ON;
    if (*name == 'o') {
      NXD_TEST_OK(
          nxd_layer_create_row_parallel_linear(ctx, kHidden, kHidden, &options, layer.out()));
    } else {
      NXD_TEST_OK(
          nxd_layer_create_column_parallel_linear(ctx, kHidden, kHidden, &options, layer.out()));
    }
    NXD_TEST_OK(nxd_module_add_child(attention.get(), name, layer.get()));
  }
  nxd_module_t* const children[] = {attention.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 1, root.out()));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 11));
  return root;
}

void pad(const Module& root, const Kind& kind, Heads& heads, int size) {
  const char* const classes[] = {"MyAttention"};
  NXD_TEST_OK(nxd_pad_model(root.get(), kind.padded, kHeads, classes, 1, count_heads, &heads));
  NXD_TEST_CHECK(heads.own % size == 0);
  heads.own /= size;
}

struct Outcome {
  std::vector<double> losses{};
  std::vector<std::pair<std::string, std::vector<double>>> gradients{}, parameters{};
};

// Trains for some steps.
Outcome train(nxd_context_t* ctx, const Kind& kind, int size, const std::string& save_to = "") {
  Outcome out;
  Heads heads{kHeads};
  const Module root = attention_model(ctx, kind, heads);
  if (kind.padded) pad(root, kind, heads, size);
  NXD_TEST_OK(nxd_move_model_to_device(root.get(), kind.device));
  nxd_optimizer_t* optimizer = nullptr;
  nxd_ddp_t* ddp = nullptr;
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 0.01;
  if (kind.zero_copies) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = 1;
    options.reduce = NXD_REDUCE_AVG;
    NXD_TEST_OK(nxd_ddp_create(root.get(), &options, &ddp));
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &adamw, &optimizer));
  } else {
    NXD_TEST_OK(nxd_optimizer_create_adamw(root.get(), &adamw, &optimizer));
  }
  const auto on_device = [&](const Tensor& x) {
    Tensor moved;
    NXD_TEST_OK(nxd_tensor_to_device(x.get(), kind.device, moved.out()));
    return moved;
  };
  const Tensor x = on_device(wave({2, 5, kHidden}, kind.dtype, 1)),
               weights = on_device(wave({2, 5, kHidden}, kind.dtype, 2));
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = op("sum", {{"self", mul(root({x}), weights)}});
    NXD_TEST_OK(nxd_module_zero_grad(root.get()));
    backward(loss);
    if (step == 0 && !ddp) {
      for (const auto& [name, p] : root.parameters()) {
        out.gradients.emplace_back(name, values(whole_grad(p)));
      }
    }
    NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
    out.losses.push_back(loss.item());
  }
  for (const auto& [name, p] : root.parameters()) {
    out.parameters.emplace_back(name, values(whole(p)));
  }
  // Padding is still zero: without it a shard has the same sums.
  double padding = 0;
  for (const auto& [name, p] : root.parameters()) {
    int32_t dim = -1;
    size_t ranges = 0;
    int64_t begin = 0, end = 0;
    size_t ndim = 0;
    int64_t shape[2] = {0, 0};
    NXD_TEST_OK(nxd_parameter_get_shard(p, &dim, &begin, &end, 1, &ranges));
    NXD_TEST_OK(nxd_parameter_get_global_shape(p, shape, 2, &ndim));
    if (dim < 0 || ranges != 1 || end <= shape[dim]) continue;
    const int64_t real = std::max<int64_t>(shape[dim] - begin, 0), all = end - begin;
    Tensor own;
    nxd_tensor_t* shard = nullptr;
    NXD_TEST_OK(nxd_parameter_get_tensor(p, &shard));
    NXD_TEST_OK(nxd_tensor_to_device(shard, NXD_DEVICE_CPU, own.out()));
    padding = std::max(
        padding,
        max_abs(values(
            op("narrow", {{"self", own}, {"dim", dim}, {"start", real}, {"length", all - real}}))));
  }
  NXD_TEST_CHECK(padding == 0);
  if (!save_to.empty()) {
    NXD_TEST_OK(nxd_module_save_safetensors(root.get(), (save_to + ".model").c_str()));
    NXD_TEST_OK(nxd_optimizer_save(optimizer, (save_to + ".optimizer").c_str()));
  }
  nxd_optimizer_destroy(optimizer);
  nxd_ddp_destroy(ddp);
  return out;
}

struct Runs {
  Kind kind;
  std::string save_to{};
  Outcome first{};  // of rank 0
};

void train_rank(nxd_context_t* ctx, int rank, int size, void* user_data) {
  auto& runs = *static_cast<Runs*>(user_data);
  const int copies = std::max(runs.kind.zero_copies, 1);
  Outcome own = train(ctx, runs.kind, size / copies, runs.save_to);
  if (rank == 0) runs.first = std::move(own);
}

Outcome train_on(int size, const Kind& kind, const std::string& save_to = "") {
  Runs runs{kind, save_to};
  nxd_test_run_ranks(size, size / std::max(kind.zero_copies, 1), train_rank, &runs);
  return runs.first;
}

void check_near(const std::string& what, const std::vector<double>& a, const std::vector<double>& b,
                double tolerance) {
  assert_int_equal(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = larger_error(most, a[i] - b[i]);
  if (!(most <= tolerance * std::fmax(max_abs(b), 1e-3))) {
    fail_msg("%s: max difference %g of %g", what.c_str(), most, max_abs(b));
  }
}

void check_same(const std::string& what, const Outcome& a, const Outcome& b, double tolerance) {
  check_near(what + ": losses", a.losses, b.losses, tolerance);
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    const std::string& name = b.parameters[i].first;
    if (!a.gradients.empty()) {
      check_near(what + ": gradient of " + name, a.gradients[i].second, b.gradients[i].second,
                 tolerance);
    }
    check_near(what + ": " + name, a.parameters[i].second, b.parameters[i].second, tolerance);
  }
}

// One rank without padding has the values that every padded layout has.
void test_layouts(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
    const double tolerance = dtype == NXD_DTYPE_F64 ? 1e-9 : 1e-4;
    const Outcome plain = train_on(1, {dtype});
    for (const int size : {1, 2, 4}) {
      for (const bool defer : {false, true}) {
        check_same("tp " + std::to_string(size), train_on(size, {dtype, NXD_DEVICE_CPU, 4, defer}),
                   plain, tolerance);
      }
    }
    check_same("degree 2 on 2 ranks", train_on(2, {dtype, NXD_DEVICE_CPU, 2}), plain, tolerance);
    check_same("degree 8 on 2 ranks", train_on(2, {dtype, NXD_DEVICE_CPU, 8}), plain, tolerance);
    check_same("zero-1", train_on(4, {dtype, NXD_DEVICE_CPU, 4, false, 2}), plain, tolerance);
    check_same("recorded", train_on(2, {dtype, NXD_DEVICE_XLA, 4}), plain, tolerance);
  }
}

// ---- Files.

struct Saved {
  std::string path;
  int padded;  // 0: not
  std::vector<std::pair<std::string, std::vector<double>>> read{};
};

void load_rank(nxd_context_t* ctx, int rank, int size, void* user_data) {
  auto& saved = *static_cast<Saved*>(user_data);
  Heads heads{kHeads};
  const Kind kind{NXD_DTYPE_F64, NXD_DEVICE_CPU, saved.padded};
  const Module root = attention_model(ctx, kind, heads);
  if (saved.padded) pad(root, kind, heads, size);
  NXD_TEST_OK(nxd_module_load_safetensors(root.get(), (saved.path + ".model").c_str(), 1, nullptr));
  nxd_optimizer_t* optimizer = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(root.get(), nullptr, &optimizer));
  NXD_TEST_OK(nxd_optimizer_load(optimizer, (saved.path + ".optimizer").c_str()));
  NXD_TEST_OK(nxd_optimizer_save(optimizer, (saved.path + ".again").c_str()));
  nxd_optimizer_destroy(optimizer);
  for (const auto& [name, p] : root.parameters()) {
    auto own = values(whole(p));
    if (rank == 0) saved.read.emplace_back(name, std::move(own));
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Files that four padded ranks save are what one rank without padding reads, and the other way
// round.
void test_files(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/a";
  const Outcome trained = train_on(4, {NXD_DTYPE_F64, NXD_DEVICE_CPU, 4}, path);
  const std::string model = bytes_of(path + ".model");
  assert_true(model.find("\"shape\":[12,12]") != std::string::npos);
  assert_true(model.find("\"shape\":[16") == std::string::npos);
  for (const auto& [size, padded] : {std::pair(1, 0), {1, 4}, {2, 2}, {2, 8}, {4, 4}}) {
    Saved saved{path, padded};
    nxd_test_run_ranks(size, size, load_rank, &saved);
    assert_true(saved.read == trained.parameters);
    assert_true(bytes_of(path + ".again") == bytes_of(path + ".optimizer"));
  }
}

// ---- Whole inputs and outputs, fused weights, and biases that are not added.

struct Pair {
  nxd_linear_options_t column = NXD_LINEAR_OPTIONS_INIT, row = NXD_LINEAR_OPTIONS_INIT;
  int padded = 0;
  int64_t features = 24;
  std::vector<double> y{}, dx{};
  std::vector<std::vector<double>> gradients{};
};

void pair_rank(nxd_context_t* ctx, int rank, int, void* user_data) {
  auto& c = *static_cast<Pair*>(user_data);
  Module column, row, root;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 6, c.features, &c.column, column.out()));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, c.features, 6, &c.row, row.out()));
  nxd_module_t* const children[] = {column.get(), row.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, root.out()));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 3));
  if (c.padded) {
    NXD_TEST_OK(nxd_pad_model(root.get(), c.padded, 3, nullptr, 0, nullptr, nullptr));
    NXD_TEST_OK(nxd_pad_model(root.get(), c.padded, 3, nullptr, 0, nullptr, nullptr));
  }
  const Tensor x = leaf(wave({5, 6}, NXD_DTYPE_F64, 1), NXD_DTYPE_F64, true);
  Tensor h;
  if (c.column.skip_bias_add) {
    nxd_tensor_t* const in = x.get();
    nxd_tensor_t* parts[2] = {nullptr, nullptr};
    NXD_TEST_OK(nxd_module_forward(column.get(), &in, 1, parts, 2));
    const Tensor without(parts[0]), bias(parts[1]);
    h = op("add", "Tensor", {{"self", without}, {"other", bias}});
  } else {
    h = column({x});
  }
  // With whole features padding is not seen.
  if (c.column.gather_output != NXD_TOGGLE_OFF) {
    NXD_TEST_CHECK(h.shape() == (std::vector<int64_t>{5, c.features}));
  }
  const Tensor y = row({op("exp", {{"self", h}})});
  backward(y, wave({5, 6}, NXD_DTYPE_F64, 2));
  NXD_TEST_OK(nxd_finish_grads(root.get(), nullptr, nullptr));
  std::vector<std::vector<double>> gradients;
  for (const auto& [name, p] : root.parameters()) gradients.push_back(values(whole_grad(p)));
  if (rank != 0) return;
  c.y = values(y);
  c.dx = values(x.grad());
  c.gradients = gradients;
}

Pair pair_of_form(int form) {
  Pair c;
  c.column.dtype = c.row.dtype = NXD_DTYPE_F64;
  if (form > 0) {
    c.column.gather_output = NXD_TOGGLE_OFF;
    c.row.input_is_parallel = 1;
  }
  if (form == 2) c.column.stride = c.row.stride = 2;
  if (form == 3) c.column.skip_bias_add = 1;
  return c;
}

void check_pair(const std::string& what, Pair c, int size) {
  Pair plain = c;
  plain.padded = 0;
  nxd_test_run_ranks(1, 1, pair_rank, &plain);
  nxd_test_run_ranks(size, size, pair_rank, &c);
  check_near(what, c.y, plain.y, 1e-9);
  check_near(what + ": input gradient", c.dx, plain.dx, 1e-9);
  assert_int_equal(c.gradients.size(), plain.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    check_near(what + ": gradient", c.gradients[i], plain.gradients[i], 1e-9);
  }
}

std::string name_of(int form, int size) {
  return "form " + std::to_string(form) + " tp " + std::to_string(size);
}

void test_options(void**) {
  for (const int form : {0, 1, 2, 3}) {
    for (const int size : {1, 2, 4}) {
      Pair c = pair_of_form(form);
      c.padded = 4;
      check_pair(name_of(form, size), c, size);
    }
  }
}

// Layers whose features the ranks do not divide, as they are and once heads are padded.
void test_pad_option(void**) {
  for (const int form : {0, 1, 2, 3}) {
    for (const int size : {1, 2, 4}) {
      for (const int padded : {0, 4}) {
        Pair c = pair_of_form(form);
        c.features = form == 2 ? 18 : 15;
        c.column.pad = c.row.pad = 1;
        c.padded = padded;
        check_pair(name_of(form, size) + " degree " + std::to_string(padded), c, size);
      }
    }
  }
  // Fewer features than ranks: some have nothing but padding.
  for (const int form : {0, 1}) {
    Pair c = pair_of_form(form);
    c.features = 2;
    c.column.pad = c.row.pad = 1;
    check_pair("two features", c, 4);
  }
}

// Heads of which there are fewer than ranks: some have nothing but padding.
void test_one_head(void**) {
  for (const int size : {2, 4}) {
    Pair plain, padded;
    plain.column.dtype = plain.row.dtype = NXD_DTYPE_F64;
    plain.column.gather_output = NXD_TOGGLE_OFF;
    plain.row.input_is_parallel = 1;
    padded = plain;
    nxd_test_run_ranks(1, 1, pair_rank, &plain);
    padded.padded = 8 * size;
    nxd_test_run_ranks(size, size, pair_rank, &padded);
    check_near("mostly padding", padded.y, plain.y, 1e-9);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),  cmocka_unit_test(test_files),
      cmocka_unit_test(test_options),  cmocka_unit_test(test_pad_option),
      cmocka_unit_test(test_one_head),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
