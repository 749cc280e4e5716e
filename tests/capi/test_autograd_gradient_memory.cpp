// Each leaf has its gradient in memory of its own, however it came there: what adds to it, scales
// or reduces it in place changes nothing else, and what the caller does with other tensors does not
// change it.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

Tensor vector4(double value) {
  return from_doubles({value, value, value, value}, {4}, NXD_DTYPE_F32);
}

Tensor leaf4(double value) { return leaf(vector4(value), NXD_DTYPE_F32, true); }

Tensor squared_shape(const Tensor& x) {
  return op("view", {{"self", x}, {"size", std::vector<int64_t>{2, 2}}});
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  return op("add", "Tensor", {{"self", a}, {"other", b}});
}

Tensor total(const Tensor& x) { return op("sum", {{"self", x}}); }

void check_all(int line, const char* what, const Tensor& t, double expected) {
  if (!t) return nxd_test_fail(__FILE__, line, "%s: there is none", what);
  for (const double value : values(t)) {
    if (value == expected) continue;
    return nxd_test_fail(__FILE__, line, "%s: expected %g, got %g", what, expected, value);
  }
}
#define CHECK_ALL(what, t, expected) check_all(__LINE__, what, t, expected)

void leaves_that_are_seen_by_views(void**) {
  const Tensor a = leaf4(0), b = leaf4(0);
  for (int pass = 1; pass <= 3; ++pass) {
    const Tensor sum = sum_of(squared_shape(a), squared_shape(b));
    backward(total(op("mul", "Scalar", {{"self", sum}, {"other", 2.0}})));
    CHECK_ALL("gradient of a", a.grad(), 2 * pass);
    CHECK_ALL("gradient of b", b.grad(), 2 * pass);
  }
}

void a_gradient_that_the_caller_gives(void**) {
  const Tensor x = leaf4(0);
  const Tensor ones = leaf(from_doubles({1, 1, 1, 1}, {2, 2}), NXD_DTYPE_F32, false);
  for (int pass = 1; pass <= 3; ++pass) {
    backward(squared_shape(x), ones);
    CHECK_ALL("gradient", x.grad(), pass);
    CHECK_ALL("the caller's", ones, 1);
  }
  const float sevens[] = {7, 7, 7, 7};
  NXD_TEST_OK(nxd_tensor_set_grad(x.get(), nullptr));
  backward(squared_shape(x), ones);
  NXD_TEST_OK(nxd_tensor_copy_from_host(ones.get(), sevens, sizeof sevens));
  CHECK_ALL("gradient", x.grad(), 1);
}

void gradients_that_are_handed_out(void**) {
  const Tensor a = leaf4(0), b = leaf4(0);
  const Tensor ones = leaf(from_doubles({1, 1, 1, 1}, {2, 2}), NXD_DTYPE_F32, false);
  const Tensor y = sum_of(squared_shape(a), squared_shape(b));
  nxd_tensor_t *output = y.get(), *given = ones.get(), *inputs[] = {a.get(), b.get()};
  nxd_tensor_t* found[2] = {};
  NXD_TEST_OK(nxd_grad(&output, &given, 1, inputs, 2, 0, found));
  const Tensor of_a(found[0]), of_b(found[1]);
  const float sevens[] = {7, 7, 7, 7};
  NXD_TEST_OK(nxd_tensor_copy_from_host(of_a.get(), sevens, sizeof sevens));
  CHECK_ALL("gradient of b", of_b, 1);
  CHECK_ALL("the caller's", ones, 1);
}

// Callbacks that hand on what they are given.

nxd_status_t add_forward(nxd_function_call_t*, nxd_tensor_t* const* in, size_t, nxd_tensor_t** out,
                         size_t, void*) {
  return nxd_op_call("add", "Tensor", in, 2, out, 1);
}

nxd_status_t add_backward(nxd_function_call_t*, nxd_tensor_t* const* grads, size_t,
                          nxd_tensor_t** out, size_t count, void*) {
  for (size_t i = 0; i < count; ++i) {
    const nxd_status_t status = nxd_tensor_retain(grads[0], &out[i]);
    if (status) return status;
  }
  return NXD_OK;
}

nxd_status_t dot_forward(nxd_function_call_t* call, nxd_tensor_t* const* in, size_t,
                         nxd_tensor_t** out, size_t, void*) {
  for (size_t i = 0; i < 2; ++i) {
    const nxd_status_t status = nxd_function_call_save(call, in[i]);
    if (status) return status;
  }
  return nxd_op_call("dot", nullptr, in, 2, out, 1);
}

// For a gradient of 1.
nxd_status_t dot_backward(nxd_function_call_t* call, nxd_tensor_t* const*, size_t,
                          nxd_tensor_t** out, size_t, void*) {
  for (size_t i = 0; i < 2; ++i) {
    nxd_tensor_t* saved = nullptr;
    nxd_status_t status = nxd_function_call_get_saved(call, 1 - i, &saved);
    if (status == NXD_OK) status = nxd_tensor_retain(saved, &out[i]);
    if (status) return status;
  }
  return NXD_OK;
}

class Function {
 public:
  Function(const char* name, decltype(nxd_function_options_t::forward) forward,
           decltype(nxd_function_options_t::backward) backward) {
    nxd_function_options_t options = NXD_FUNCTION_OPTIONS_INIT;
    options.name = name;
    options.forward = forward;
    options.backward = backward;
    NXD_TEST_OK(nxd_function_create(&options, &handle_));
  }
  ~Function() { nxd_function_destroy(handle_); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  Tensor operator()(const Tensor& a, const Tensor& b) const {
    nxd_tensor_t *in[] = {a.get(), b.get()}, *out = nullptr;
    NXD_TEST_OK(nxd_function_apply(handle_, in, 2, &out, 1));
    return Tensor(out);
  }

 private:
  nxd_function_t* handle_ = nullptr;
};

void what_a_callers_function_returns(void**) {
  const Function add("test::add", add_forward, add_backward);
  const Tensor a = leaf4(0), b = leaf4(0), ones = leaf(vector4(1), NXD_DTYPE_F32, false);
  for (int pass = 1; pass <= 3; ++pass) {
    backward(add(a, b), ones);
    CHECK_ALL("gradient of a", a.grad(), pass);
    CHECK_ALL("gradient of b", b.grad(), pass);
    CHECK_ALL("the caller's", ones, 1);
  }
  const Function dot("test::dot", dot_forward, dot_backward);
  const Tensor x = leaf4(3), y = leaf4(5);
  for (int pass = 1; pass <= 3; ++pass) {
    backward(dot(x, y));
    CHECK_ALL("gradient of x", x.grad(), 5 * pass);
    CHECK_ALL("gradient of y", y.grad(), 3 * pass);
    CHECK_ALL("x", x, 3);
    CHECK_ALL("y", y, 5);
  }
}

// A module of the caller's whose two parameters get their gradients by views.
struct Pair {
  nxd_parameter_t *p = nullptr, *q = nullptr;
  Module module;

  explicit Pair(nxd_context_t* ctx) {
    NXD_TEST_OK(nxd_module_create(ctx, "Pair", forward, this, nullptr, module.out()));
    const int64_t shape = 4;
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    NXD_TEST_OK(nxd_module_add_parameter(module.get(), "p", &shape, 1, &options, &p));
    NXD_TEST_OK(nxd_module_add_parameter(module.get(), "q", &shape, 1, &options, &q));
  }

  static nxd_status_t forward(nxd_module_t*, nxd_tensor_t* const* in, size_t, nxd_tensor_t** out,
                              size_t, void* user_data) {
    const Pair& self = *static_cast<const Pair*>(user_data);
    Tensor x;
    NXD_TEST_OK(nxd_tensor_retain(in[0], x.out()));
    const Tensor y =
        sum_of(sum_of(x, squared_shape(tensor(self.p))), squared_shape(tensor(self.q)));
    return nxd_tensor_retain(y.get(), &out[0]);
  }
  static Tensor tensor(nxd_parameter_t* parameter) {
    nxd_tensor_t* borrowed = nullptr;
    Tensor out;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &borrowed));
    NXD_TEST_OK(nxd_tensor_retain(borrowed, out.out()));
    return out;
  }
  static Tensor grad(nxd_parameter_t* parameter) { return tensor(parameter).grad(); }
};

const std::vector<int64_t> kSquare{2, 2};

void gradients_that_are_scaled(nxd_context_t* ctx, int, int size, void*) {
  const Pair pair(ctx);
  const Tensor x = leaf(from_doubles({0, 0, 0, 0}, kSquare), NXD_DTYPE_F32, false);
  for (int pass = 0; pass < 2; ++pass) {
    backward(total(op("mul", "Scalar", {{"self", pair.module({x})}, {"other", 2.0}})));
  }
  nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
  options.scale = 0.25;
  double norm = 0;
  NXD_TEST_OK(nxd_finish_grads(pair.module.get(), &options, &norm));
  CHECK_ALL("gradient of p", Pair::grad(pair.p), size);
  CHECK_ALL("gradient of q", Pair::grad(pair.q), size);
  NXD_TEST_CHECK(std::fabs(norm - size * std::sqrt(8.0)) < 1e-5);
}

void microbatches_of_a_tape(nxd_context_t* ctx, int, int, void*) {
  const Pair pair(ctx);
  const Tensor x = leaf(from_doubles({0, 0, 0, 0}, kSquare), NXD_DTYPE_F32, false);
  const Tensor dy = leaf(from_doubles({1, 1, 1, 1}, kSquare), NXD_DTYPE_F32, false);
  double expected = 0;
  for (const float value : {1.0F, 3.0F, 10.0F}) {
    const float all[] = {value, value, value, value};
    NXD_TEST_OK(nxd_tensor_copy_from_host(dy.get(), all, sizeof all));
    nxd_tensor_t *in = x.get(), *y = nullptr, *given = dy.get(), *dx = nullptr;
    nxd_tape_t* tape = nullptr;
    NXD_TEST_OK(nxd_module_forward_tape(pair.module.get(), &in, 1, &y, 1, &tape));
    NXD_TEST_OK(nxd_tape_backward(tape, &given, 1, &dx, 1));
    expected += value;
    CHECK_ALL("gradient of p", Pair::grad(pair.p), expected);
    CHECK_ALL("gradient of q", Pair::grad(pair.q), expected);
    CHECK_ALL("gradient of x", Tensor(dx), value);
    CHECK_ALL("the caller's", dy, value);
    nxd_tape_destroy(tape);
    nxd_tensor_destroy(y);
  }
}

nxd_status_t double_gradient(nxd_parameter_t* parameter, void*) {
  const Tensor grad = Pair::grad(parameter);
  op("mul_", "Scalar", {{"self", grad}, {"other", 2.0}});
  return NXD_OK;
}

void a_hook_that_writes(nxd_context_t* ctx, int, int, void*) {
  const Pair pair(ctx);
  const Tensor x = leaf(from_doubles({0, 0, 0, 0}, kSquare), NXD_DTYPE_F32, true);
  const Tensor ones = leaf(from_doubles({1, 1, 1, 1}, kSquare), NXD_DTYPE_F32, false);
  for (nxd_parameter_t* parameter : {pair.p, pair.q}) {
    NXD_TEST_OK(nxd_parameter_set_grad_hook(parameter, double_gradient, nullptr, nullptr));
  }
  backward(pair.module({x}), ones);
  CHECK_ALL("gradient of p", Pair::grad(pair.p), 2);
  CHECK_ALL("gradient of q", Pair::grad(pair.q), 2);
  CHECK_ALL("gradient of x", x.grad(), 1);
  CHECK_ALL("the caller's", ones, 1);
}

// A product that was recorded while the weight was trained no longer adds to its gradient.
void a_weight_that_is_frozen_before_backward(nxd_context_t* ctx, int, int, void*) {
  Module linear;
  NXD_TEST_OK(nxd_layer_create_linear(ctx, 4, 4, nullptr, linear.out()));
  nxd_parameter_t* weight = linear.parameters()[0].second;
  const Tensor x = leaf(from_doubles({1, 1, 1, 1}, {1, 4}), NXD_DTYPE_F32, true);
  backward(total(linear({x})));
  const Tensor y = total(linear({x}));
  NXD_TEST_OK(nxd_parameter_set_trainable(weight, 0));
  backward(y);
  NXD_TEST_OK(nxd_parameter_set_trainable(weight, 1));
  CHECK_ALL("gradient of the weight", Pair::grad(weight), 1);
}

template <nxd_test_rank_fn function>
void on_one(void**) {
  nxd_test_run_ranks(1, 1, function, nullptr);
}

template <nxd_test_rank_fn function>
void on_copies(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, 1, function, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(leaves_that_are_seen_by_views),
      cmocka_unit_test(a_gradient_that_the_caller_gives),
      cmocka_unit_test(gradients_that_are_handed_out),
      cmocka_unit_test(what_a_callers_function_returns),
      cmocka_unit_test(on_copies<gradients_that_are_scaled>),
      cmocka_unit_test(on_one<microbatches_of_a_tape>),
      cmocka_unit_test(on_one<a_hook_that_writes>),
      cmocka_unit_test(on_one<a_weight_that_is_frozen_before_backward>),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
