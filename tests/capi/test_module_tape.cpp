// Tapes: what a framework with its own differentiation gets from forward_tape and tape_backward is
// what autograd gives, for every layer.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

struct Tape {
  nxd_tape_t* handle = nullptr;
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { nxd_tape_destroy(handle); }
};

struct Layer {
  std::string name;
  Module module;
  Tensor input;
};

void add_linears(nxd_context_t* ctx, int size, std::vector<Layer>& layers) {
  const nxd_dtype_t f32 = NXD_DTYPE_F32;
  const nxd_linear_options_t plain = NXD_LINEAR_OPTIONS_INIT;
  nxd_linear_options_t split = plain, parallel = plain, sequence = plain;
  split.gather_output = NXD_TOGGLE_OFF;
  parallel.input_is_parallel = 1;
  sequence.sequence_parallel = 1;
  sequence.input_is_parallel = 1;
  const auto add = [&](const char* name, const Tensor& x, auto create, const auto& options) {
    Layer layer{name, {}, x};
    NXD_TEST_OK(create(ctx, 16, 24, &options, layer.module.out()));
    layers.push_back(std::move(layer));
  };
  const Tensor x = wave({8, 3, 16}, f32, 1), x_part = wave({8, 3, 16 / size}, f32, 1),
               x_slice = wave({8 / size, 3, 16}, f32, 1);
  add("column, gathered", x, nxd_layer_create_column_parallel_linear, plain);
  add("column, split", x, nxd_layer_create_column_parallel_linear, split);
  add("column, sequence parallel", x_slice, nxd_layer_create_column_parallel_linear, sequence);
  add("row, whole input", x, nxd_layer_create_row_parallel_linear, plain);
  add("row, split input", x_part, nxd_layer_create_row_parallel_linear, parallel);
  add("row, sequence parallel", x_part, nxd_layer_create_row_parallel_linear, sequence);
}

std::vector<Layer> make_layers(nxd_context_t* ctx, int size) {
  std::vector<Layer> layers;
  add_linears(ctx, size, layers);
  const Tensor x = wave({2, 6, 16}, NXD_DTYPE_F32, 1);
  const auto add = [&](const char* name, const Tensor& input, const auto& create) {
    Layer layer{name, {}, input};
    NXD_TEST_OK(create(layer.module.out()));
    layers.push_back(std::move(layer));
  };
  add("embedding", from_ints({1, 5, 7, 0, 11, 5}, {2, 3}),
      [&](auto** out) { return nxd_layer_create_parallel_embedding(ctx, 12, 8, nullptr, out); });
  add("layer norm", x,
      [&](auto** out) { return nxd_layer_create_layer_norm(ctx, 16, nullptr, out); });
  add("RMS norm", x, [&](auto** out) { return nxd_layer_create_rms_norm(ctx, 16, nullptr, out); });
  add("gated MLP", x,
      [&](auto** out) { return nxd_layer_create_gated_mlp(ctx, 16, 32, nullptr, out); });
  add("attention", x,
      [&](auto** out) { return nxd_layer_create_attention(ctx, 16, 4, nullptr, out); });
  add("rotary embedding", wave({2, 5, 3, 8}, NXD_DTYPE_F32, 1),
      [&](auto** out) { return nxd_layer_create_rotary_embedding(ctx, 8, nullptr, out); });
  add("dropout", x, [&](auto** out) { return nxd_layer_create_dropout(ctx, 0.4, "d", -1, out); });
  add("dropout that drops nothing", x,
      [&](auto** out) { return nxd_layer_create_dropout(ctx, 0, "d", -1, out); });
  return layers;
}

std::vector<Tensor> shard_grads(const Module& module) {
  std::vector<Tensor> grads;
  for (const auto& [name, parameter] : module.parameters()) {
    nxd_tensor_t* shard = nullptr;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &shard));
    Tensor grad;
    NXD_TEST_OK(nxd_tensor_share_grad(shard, grad.out()));
    grads.push_back(grad ? leaf(grad, grad.dtype(), false) : grad);
  }
  return grads;
}

bool record(const Layer& layer, const Tensor& input, Tensor& y, Tape& tape) {
  nxd_tensor_t* in = input.get();
  return NXD_TEST_OK(nxd_module_forward_tape(layer.module.get(), &in, 1, y.out(), 1, &tape.handle));
}

void expect_same(const std::string& what, const Tensor& got, const Tensor& want) {
  if (!got && !want) return;
  if (got && want && max_difference(got, want) == 0) return;
  nxd_test_fail(__FILE__, __LINE__, "%s: the tape's differs from autograd's", what.c_str());
}

void check_layer(const Layer& layer) {
  const bool differentiable = layer.input.dtype() != NXD_DTYPE_I64;
  const Tensor x = differentiable ? leaf(layer.input, NXD_DTYPE_F32, true) : layer.input;
  const Tensor y = layer.module({x});
  if (!y) return;
  const Tensor g = wave(y.shape(), NXD_DTYPE_F32, 3);
  NXD_TEST_OK(nxd_module_zero_grad(layer.module.get()));
  backward(y, g);
  const std::vector<Tensor> want = shard_grads(layer.module);

  NXD_TEST_OK(nxd_module_zero_grad(layer.module.get()));
  Tensor taped, dx;
  Tape tape;
  if (!record(layer, layer.input, taped, tape)) return;
  expect_same(layer.name + ": output", taped, y);
  int32_t requires_grad = 1;
  NXD_TEST_OK(nxd_tensor_get_requires_grad(taped.get(), &requires_grad));
  NXD_TEST_CHECK(requires_grad == 0);
  nxd_tensor_t* grad = g.get();
  NXD_TEST_OK(nxd_tape_backward(tape.handle, &grad, 1, dx.out(), 1));
  expect_same(layer.name + ": input gradient", dx, differentiable ? x.grad() : Tensor());
  const std::vector<Tensor> got = shard_grads(layer.module);
  for (size_t i = 0; i < want.size(); ++i) {
    expect_same(layer.name + ": gradient " + std::to_string(i), got[i], want[i]);
  }
  nxd_tensor_t* again = g.get();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, &grad, 1, &again, 1), NXD_ERROR_INVALID_STATE,
                   "used already");
  NXD_TEST_CHECK(again == nullptr);

  // Gradients add up over backward passes, whichever way they are run.
  Tensor second, second_dx;
  Tape other;
  if (!record(layer, layer.input, second, other)) return;
  NXD_TEST_OK(nxd_tape_backward(other.handle, &grad, 1, second_dx.out(), 1));
  const std::vector<Tensor> twice = shard_grads(layer.module);
  for (size_t i = 0; i < want.size(); ++i) {
    if (!want[i]) continue;
    const Tensor doubled = op("mul", "Scalar", {{"self", want[i]}, {"other", 2.0}});
    expect_same(layer.name + ": twice the gradient " + std::to_string(i), twice[i], doubled);
  }
}

void every_layer(nxd_context_t* ctx, int, int size, void*) {
  for (const bool plain : {false, true}) {
    NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, plain));
    for (const Layer& layer : make_layers(ctx, size)) check_layer(layer);
  }
}

void test_every_layer(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, every_layer, nullptr);
}

// y0 = a + b, y1 = 2 b, and the third output does not depend on the inputs.
nxd_status_t two_of_three(nxd_module_t*, nxd_tensor_t* const* inputs, size_t n_inputs,
                          nxd_tensor_t** outputs, size_t n_outputs, void*) {
  if (n_inputs != 2 || n_outputs != 3) return NXD_ERROR_USER;
  const auto run = [](const char* name, const char* overload, const char* self, nxd_tensor_t* a,
                      nxd_tensor_t* b, nxd_tensor_t** out) {
    nxd_op_t* op = nullptr;
    nxd_status_t status = nxd_op_create(name, overload, &op);
    if (!status) status = nxd_op_set_tensor(op, self, a);
    if (!status && b) status = nxd_op_set_tensor(op, "other", b);
    if (!status) status = nxd_op_run(op);
    if (!status) status = nxd_op_share_tensor(op, 0, out);
    nxd_op_destroy(op);
    return status;
  };
  nxd_status_t status = run("add", "Tensor", "self", inputs[0], inputs[1], &outputs[0]);
  if (!status) status = run("add", "Tensor", "self", inputs[1], inputs[1], &outputs[1]);
  if (!status) status = run("zeros_like", "", "self", inputs[0], nullptr, &outputs[2]);
  if (!status) {
    nxd_tensor_t* constant = nullptr;
    status = nxd_tensor_detach(outputs[2], &constant);
    nxd_tensor_destroy(outputs[2]);
    outputs[2] = constant;
  }
  return status;
}

struct Multi {
  Module module;
  Tensor a = from_doubles({1, 2}, {2}, NXD_DTYPE_F32), b = from_doubles({3, 4}, {2}, NXD_DTYPE_F32);

  explicit Multi(nxd_context_t* ctx) {
    NXD_TEST_OK(nxd_module_create(ctx, "TwoOfThree", two_of_three, nullptr, nullptr, module.out()));
  }
  void record(Tape& tape) {
    nxd_tensor_t* in[] = {a.get(), b.get()};
    nxd_tensor_t* out[3] = {};
    NXD_TEST_OK(nxd_module_forward_tape(module.get(), in, 2, out, 3, &tape.handle));
    for (nxd_tensor_t* tensor : out) nxd_tensor_destroy(tensor);
  }
};

void missing_gradients(nxd_context_t* ctx, int, int, void*) {
  Multi multi(ctx);
  const Tensor g = from_doubles({10, 20}, {2}, NXD_DTYPE_F32);
  const auto run = [&](nxd_tensor_t* g0, nxd_tensor_t* g1, nxd_tensor_t* g2,
                       const std::vector<double>& da, const std::vector<double>& db) {
    Tape tape;
    multi.record(tape);
    nxd_tensor_t* grads[] = {g0, g1, g2};
    nxd_tensor_t* out[2] = {};
    if (!NXD_TEST_OK(nxd_tape_backward(tape.handle, grads, 3, out, 2))) return;
    const Tensor first(out[0]), second(out[1]);
    NXD_TEST_CHECK(first ? values(first) == da : da.empty());
    NXD_TEST_CHECK(second ? values(second) == db : db.empty());
  };
  run(g.get(), g.get(), g.get(), {10, 20}, {30, 60});
  run(g.get(), nullptr, nullptr, {10, 20}, {10, 20});
  run(nullptr, g.get(), nullptr, {0, 0}, {20, 40});
  run(nullptr, nullptr, nullptr, {0, 0}, {0, 0});
}

void test_missing_gradients(void**) { nxd_test_run_ranks(1, 1, missing_gradients, nullptr); }

// Backward does not enter operations on an input that were recorded before the tape.
void outside_graph(nxd_context_t* ctx, int, int, void*) {
  Multi multi(ctx);
  const Tensor x = leaf(wave({2}, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
  multi.a = op("mul", "Scalar", {{"self", x}, {"other", 3.0}});
  Tape tape;
  multi.record(tape);
  const Tensor g = from_doubles({10, 20}, {2}, NXD_DTYPE_F32);
  nxd_tensor_t* grads[] = {g.get(), nullptr, nullptr};
  nxd_tensor_t* out[2] = {};
  NXD_TEST_OK(nxd_tape_backward(tape.handle, grads, 3, out, 2));
  const Tensor da(out[0]), db(out[1]);
  NXD_TEST_CHECK(values(da) == std::vector<double>({10, 20}));
  NXD_TEST_CHECK(!x.grad());
}

// The same with recording switched off on the caller's thread: a tape records by itself.
void without_recording(nxd_context_t* ctx, int, int, void*) {
  Multi multi(ctx);
  int32_t previous = 0;
  NXD_TEST_OK(nxd_set_grad_enabled(0, &previous));
  Tape tape;
  multi.record(tape);
  const Tensor g = from_doubles({10, 20}, {2}, NXD_DTYPE_F32);
  nxd_tensor_t* grads[] = {g.get(), nullptr, nullptr};
  nxd_tensor_t* out[2] = {};
  NXD_TEST_OK(nxd_tape_backward(tape.handle, grads, 3, out, 2));
  NXD_TEST_OK(nxd_set_grad_enabled(previous, nullptr));
  const Tensor da(out[0]), db(out[1]);
  NXD_TEST_CHECK(values(da) == std::vector<double>({10, 20}));
}

void test_graphs(void**) {
  nxd_test_run_ranks(1, 1, outside_graph, nullptr);
  nxd_test_run_ranks(1, 1, without_recording, nullptr);
}

void refusals(nxd_context_t* ctx, int, int, void*) {
  Multi multi(ctx);
  Tape tape;
  multi.record(tape);
  const Tensor g = from_doubles({10, 20}, {2}, NXD_DTYPE_F32), long_g = wave({3}, NXD_DTYPE_F32, 1),
               wide = from_doubles({10, 20}, {2});
  nxd_tensor_t* grads[] = {g.get(), g.get(), g.get(), g.get()};
  nxd_tensor_t* out[3] = {g.get(), g.get(), g.get()};
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  const auto cleared = [&] {
    NXD_TEST_CHECK(out[0] == nullptr && out[1] == nullptr);
    out[0] = out[1] = g.get();
  };
  NXD_TEST_REFUSED(nxd_tape_backward(nullptr, grads, 3, out, 2), bad, "tape");
  cleared();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, nullptr, 3, out, 2), bad, "grad_outputs");
  cleared();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, grads, 3, nullptr, 2), bad, "out_grad_inputs");
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, grads, 2, out, 2), bad,
                   "num_outputs: expected 3");
  cleared();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, grads, 4, out, 2), bad,
                   "num_outputs: expected 3");
  cleared();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, grads, 3, out, 3), bad, "num_inputs: expected 2");
  cleared();
  grads[1] = long_g.get();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, grads, 3, out, 2), bad,
                   "grad_outputs[1]: expected shape [2]");
  cleared();
  grads[1] = wide.get();
  NXD_TEST_REFUSED(nxd_tape_backward(tape.handle, grads, 3, out, 2), bad, "grad_outputs[1]");
  cleared();
  // Nothing of that used the tape up.
  grads[1] = nullptr;
  NXD_TEST_OK(nxd_tape_backward(tape.handle, grads, 3, out, 2));
  nxd_tensor_destroy(out[0]);
  nxd_tensor_destroy(out[1]);

  nxd_tensor_t* in[] = {multi.a.get(), multi.b.get()};
  nxd_tape_t* none = tape.handle;
  out[0] = out[1] = out[2] = g.get();
  NXD_TEST_REFUSED(nxd_module_forward_tape(nullptr, in, 2, out, 3, &none), bad, "module");
  NXD_TEST_CHECK(none == nullptr);
  cleared();
  NXD_TEST_REFUSED(nxd_module_forward_tape(multi.module.get(), nullptr, 2, out, 3, &none), bad,
                   "inputs");
  NXD_TEST_REFUSED(nxd_module_forward_tape(multi.module.get(), in, 2, nullptr, 3, &none), bad,
                   "outputs");
  NXD_TEST_REFUSED(nxd_module_forward_tape(multi.module.get(), in, 2, out, 3, nullptr), bad,
                   "out_tape");
  none = tape.handle;
  NXD_TEST_REFUSED(nxd_module_forward_tape(multi.module.get(), in, 1, out, 3, &none),
                   NXD_ERROR_USER, "TwoOfThree");
  NXD_TEST_CHECK(none == nullptr && out[0] == nullptr && out[2] == nullptr);
}

void test_refusals(void**) { nxd_test_run_ranks(1, 1, refusals, nullptr); }

// A tape's gradients that are wrong on one rank alone: the peers are told where they sum the
// input's.
void refused_gradients(nxd_context_t* ctx, int rank, int size, void*) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_OFF;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &options, layer.out()));
  const Tensor x = wave({3, 8}, NXD_DTYPE_F32, 1), good = wave({3, 16 / size}, NXD_DTYPE_F32, 2);
  const Tensor narrow = wave({3, 3}, NXD_DTYPE_F32, 3), wide = to(good, NXD_DTYPE_F64);
  const Tensor placeless = without_values({3, 16 / size}, NXD_DTYPE_F32);
  const bool mine = rank == size - 1;
  nxd_tensor_t* in = x.get();
  // The input's gradient, or NULL after a failure.
  const auto pass = [&](nxd_tensor_t* const* grads, bool has_room, const char* part) {
    Tape tape;
    Tensor y;
    nxd_tensor_t* dx = nullptr;
    NXD_TEST_OK(nxd_module_forward_tape(layer.get(), &in, 1, y.out(), 1, &tape.handle));
    const nxd_status_t status =
        nxd_tape_backward(tape.handle, grads, 1, has_room ? &dx : nullptr, 1);
    if (part) {
      nxd_test_refused(__FILE__, __LINE__, "nxd_tape_backward", status, NXD_ERROR_INVALID_ARGUMENT,
                       part);
    } else {
      NXD_TEST_OK(status);
    }
    return Tensor(dx);
  };
  nxd_tensor_t* const fits = good.get();
  const auto refused = [&](nxd_tensor_t* const* grads, bool has_room, const char* part) {
    const bool gives_none = !pass(mine ? grads : &fits, !mine || has_room, mine ? part : "rank ");
    NXD_TEST_CHECK(gives_none);
  };
  refused(nullptr, true, "grad_outputs");
  refused(&fits, false, "out_grad_inputs");
  for (const Tensor* each : {&narrow, &wide, &placeless}) {
    nxd_tensor_t* const grad = each->get();
    refused(&grad, true, "grad_outputs[0]");
  }
  // A tape that one rank has used before.
  Tape used, fresh;
  for (Tape* tape : {&used, &fresh}) {
    Tensor y;
    NXD_TEST_OK(nxd_module_forward_tape(layer.get(), &in, 1, y.out(), 1, &tape->handle));
  }
  Tensor first;
  NXD_TEST_OK(nxd_tape_backward(used.handle, &fits, 1, first.out(), 1));
  nxd_tensor_t* second = good.get();
  NXD_TEST_REFUSED(nxd_tape_backward((mine ? used : fresh).handle, &fits, 1, &second, 1),
                   mine ? NXD_ERROR_INVALID_STATE : NXD_ERROR_INVALID_ARGUMENT, "used already");
  NXD_TEST_CHECK(second == nullptr);
  const Tensor dx = pass(&fits, true, nullptr);
  if (dx) NXD_TEST_CHECK(std::isfinite(max_abs(values(dx))));
}

void test_refused_gradients(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, refused_gradients, nullptr);
}

// A tape keeps what it needs: the module and the inputs may go first.
void outlives(nxd_context_t* ctx, int, int size, void*) {
  Tape tape;
  Tensor y, dx;
  {
    Module layer;
    const Tensor x = wave({3, 16}, NXD_DTYPE_F32, 1);
    NXD_TEST_OK(nxd_layer_create_gated_mlp(ctx, 16, 8 * size, nullptr, layer.out()));
    nxd_tensor_t* in = x.get();
    NXD_TEST_OK(nxd_module_forward_tape(layer.get(), &in, 1, y.out(), 1, &tape.handle));
  }
  nxd_tensor_t* grad = y.get();
  NXD_TEST_OK(nxd_tape_backward(tape.handle, &grad, 1, dx.out(), 1));
  NXD_TEST_CHECK(dx && max_abs(values(dx)) > 0);
}

void test_outlives(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, outlives, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_every_layer), cmocka_unit_test(test_missing_gradients),
      cmocka_unit_test(test_graphs),      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_outlives),    cmocka_unit_test(test_refused_gradients),
  };
  return cmocka_run_group_tests_name("tape", tests, nullptr, nullptr);
}
