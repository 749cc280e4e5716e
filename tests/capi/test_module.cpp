// Modules of the caller's own, names, gradient hooks, freezing, whole parameters, and what
// lives how long.
#include "support/tensor.h"

#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kBad = NXD_ERROR_INVALID_ARGUMENT;

Module container(nxd_context_t* ctx) {
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, module.out()));
  return module;
}

nxd_parameter_t* add(const Module& module, const char* name, const std::vector<int64_t>& shape,
                     nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module.get(), name, shape.data(),
                                       static_cast<int32_t>(shape.size()), &options, &parameter));
  return parameter;
}

nxd_tensor_t* shard_of(nxd_parameter_t* parameter) {
  nxd_tensor_t* shard = nullptr;
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &shard));
  return shard;
}

std::vector<double> shard_values(nxd_parameter_t* parameter) {
  Tensor copy;
  NXD_TEST_OK(nxd_tensor_detach(shard_of(parameter), copy.out()));
  return values(copy);
}

Tensor grad_of(nxd_parameter_t* parameter) {
  Tensor grad;
  NXD_TEST_OK(nxd_tensor_share_grad(shard_of(parameter), grad.out()));
  return grad;
}

nxd_parameter_t* find(const Module& module, const std::string& name) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(module.get(), name.c_str(), &parameter));
  return parameter;
}

// ---- callback modules

// y = child(x) * scale, with a child and a parameter of the module's own, found through self.
struct Scaled {
  int destroyed = 0;
  int calls = 0;
};

nxd_status_t scaled_forward(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t n_inputs,
                            nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  ++static_cast<Scaled*>(user_data)->calls;
  if (n_inputs != 1 || n_outputs != 1) return NXD_ERROR_USER;
  nxd_module_t* child = nullptr;
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t *scale = nullptr, *inner = nullptr;
  nxd_op_t* mul = nullptr;
  nxd_status_t status = nxd_module_find_module(self, "inner", &child);
  if (!status) status = nxd_module_find_parameter(self, "scale", &parameter);
  if (!status) status = nxd_parameter_get_tensor(parameter, &scale);
  if (!status) status = nxd_module_forward(child, inputs, 1, &inner, 1);
  if (!status) status = nxd_op_create("mul", "Tensor", &mul);
  if (!status) status = nxd_op_set_tensor(mul, "self", inner);
  if (!status) status = nxd_op_set_tensor(mul, "other", scale);
  if (!status) status = nxd_op_run(mul);
  if (!status) status = nxd_op_share_tensor(mul, 0, outputs);
  nxd_op_destroy(mul);
  nxd_tensor_destroy(inner);
  return status;
}

Module scaled(nxd_context_t* ctx, Scaled* data) {
  Module module, inner;
  NXD_TEST_OK(nxd_module_create(
      ctx, "Scaled", scaled_forward, data,
      [](void* user_data) { ++static_cast<Scaled*>(user_data)->destroyed; }, module.out()));
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 12, nullptr, inner.out()));
  NXD_TEST_OK(nxd_module_add_child(module.get(), "inner", inner.get()));
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.init = NXD_INIT_CONSTANT;
  options.init_a = 3;
  add(module, "scale", {12}, options);
  return module;
}

void callback_module(nxd_context_t* ctx, int, int, void*) {
  Scaled data;
  {
    const Module module = scaled(ctx, &data);
    NXD_TEST_OK(nxd_module_initialize(module.get(), 5));
    const Tensor x = leaf(wave({3, 8}, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
    const Tensor y = module({x});
    if (!y) return;
    NXD_TEST_CHECK(data.calls == 1);
    const Tensor inner = op("linear", {{"input", x},
                                       {"weight", whole(find(module, "inner.weight"))},
                                       {"bias", whole(find(module, "inner.bias"))}});
    NXD_TEST_CLOSE("output", y, op("mul", "Scalar", {{"self", inner}, {"other", 3.0}}), 1e-6);
    backward(y, wave({3, 12}, NXD_DTYPE_F32, 2));
    const Tensor products =
        op("mul", "Tensor", {{"self", inner}, {"other", wave({3, 12}, NXD_DTYPE_F32, 2)}});
    const Tensor want =
        op("sum", "dim_IntList", {{"self", products}, {"dim", std::vector<int64_t>{0}}});
    NXD_TEST_CLOSE("gradient of scale", grad_of(find(module, "scale")), want, 1e-5);
    // A nested call's rejection comes through with its message.
    nxd_tensor_t* wrong = x.get();
    const Tensor narrow = wave({3, 7}, NXD_DTYPE_F32, 1);
    nxd_tensor_t* in = narrow.get();
    NXD_TEST_REFUSED(nxd_module_forward(module.get(), &in, 1, &wrong, 1), kBad, "8 features");
    NXD_TEST_CHECK(wrong == nullptr);
    NXD_TEST_REFUSED(nxd_module_forward(module.get(), nullptr, 0, &wrong, 1), NXD_ERROR_USER,
                     "Scaled: forward");
    NXD_TEST_CHECK(data.destroyed == 0);
  }
  NXD_TEST_CHECK(data.destroyed == 1);
}

void test_callback_module(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, callback_module, nullptr);
}

// A tensor whose memory says when it is released.
struct Watched {
  float data[2] = {1, 2};
  int64_t shape[1] = {2};
  int released = 0;
  DLManagedTensor managed = {
      {data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0}, this, [](DLManagedTensor* m) {
        ++static_cast<Watched*>(m->manager_ctx)->released;
      }};
};

struct Failing {
  Watched watched[3];
  nxd_status_t status = NXD_ERROR_USER;
  size_t filled = 2;
  int destroyed = 0;
};

nxd_status_t half_filled(nxd_module_t*, nxd_tensor_t* const*, size_t, nxd_tensor_t** outputs,
                         size_t n_outputs, void* user_data) {
  auto* data = static_cast<Failing*>(user_data);
  for (size_t i = 0; i < data->filled && i < n_outputs; ++i) {
    NXD_TEST_OK(nxd_tensor_from_dlpack(&data->watched[i].managed, &outputs[i]));
  }
  return data->status;
}

void failing_callbacks(nxd_context_t* ctx, int, int, void*) {
  for (const nxd_status_t status :
       {NXD_ERROR_USER, NXD_ERROR_OUT_OF_MEMORY, NXD_ERROR_TIMEOUT, NXD_OK}) {
    Failing data;
    data.status = status;
    Module module;
    NXD_TEST_OK(nxd_module_create(
        ctx, "Failing", half_filled, &data,
        [](void* user_data) { ++static_cast<Failing*>(user_data)->destroyed; }, module.out()));
    const Tensor x = wave({2}, NXD_DTYPE_F32, 1);
    nxd_tensor_t* out[3] = {x.get(), x.get(), x.get()};
    // All is well in the callback's eyes, but an output is missing: that is the caller's mistake.
    const nxd_status_t expected = status == NXD_OK ? kBad : status;
    NXD_TEST_REFUSED(nxd_module_forward(module.get(), nullptr, 0, out, 3), expected,
                     status == NXD_OK ? "filled 2 of 3 outputs" : "Failing: forward");
    NXD_TEST_CHECK(!out[0] && !out[1] && !out[2]);
    NXD_TEST_CHECK(data.watched[0].released == 1 && data.watched[1].released == 1);
    NXD_TEST_CHECK(data.watched[2].released == 0);
    nxd_tape_t* tape = nullptr;
    NXD_TEST_REFUSED(nxd_module_forward_tape(module.get(), nullptr, 0, out, 3, &tape), expected,
                     nullptr);
    NXD_TEST_CHECK(!tape && !out[0] && !out[1] && !out[2]);
    NXD_TEST_CHECK(data.watched[0].released == 2 && data.watched[1].released == 2);
    nxd_module_destroy(std::exchange(*module.out(), nullptr));
    NXD_TEST_CHECK(data.destroyed == 1);
  }
  // A container has no forward.
  const Module holder = container(ctx);
  nxd_tensor_t* out = nullptr;
  NXD_TEST_REFUSED(nxd_module_forward(holder.get(), nullptr, 0, &out, 1), NXD_ERROR_INVALID_STATE,
                   "Holder");
}

void test_failing_callbacks(void**) { nxd_test_run_ranks(1, 1, failing_callbacks, nullptr); }

// ---- names

void names(nxd_context_t* ctx, int, int, void*) {
  Module root = container(ctx), block = container(ctx), norm;
  NXD_TEST_OK(nxd_layer_create_rms_norm(ctx, 8, nullptr, norm.out()));
  NXD_TEST_OK(nxd_module_add_child(root.get(), "block", block.get()));
  NXD_TEST_OK(nxd_module_add_child(block.get(), "input_norm", norm.get()));
  nxd_parameter_t* gamma = add(block, "gamma", {3});
  add(root, "alpha", {2});

  const auto all = root.parameters();
  std::vector<std::string> found;
  for (const auto& [name, parameter] : all) found.push_back(name);
  NXD_TEST_CHECK(found ==
                 std::vector<std::string>({"alpha", "block.gamma", "block.input_norm.weight"}));
  NXD_TEST_CHECK(find(root, "block.gamma") == gamma && find(block, "gamma") == gamma);

  const char* class_name = nullptr;
  nxd_module_t* module = nullptr;
  NXD_TEST_OK(nxd_module_find_module(root.get(), "block.input_norm", &module));
  NXD_TEST_OK(nxd_module_get_class_name(module, &class_name));
  NXD_TEST_CHECK(std::string(class_name) == "RMSNorm");
  NXD_TEST_OK(nxd_module_find_module(root.get(), "", &module));
  NXD_TEST_OK(nxd_module_get_class_name(module, &class_name));
  NXD_TEST_CHECK(std::string(class_name) == "Holder");
  size_t children = 0;
  const char* child_name = nullptr;
  NXD_TEST_OK(nxd_module_get_child_count(block.get(), &children));
  NXD_TEST_CHECK(children == 1);
  NXD_TEST_OK(nxd_module_get_child(block.get(), 0, &module, &child_name));
  NXD_TEST_CHECK(std::string(child_name) == "input_norm");
  NXD_TEST_OK(nxd_module_get_child(block.get(), 0, nullptr, nullptr));

  nxd_parameter_t* none = gamma;
  NXD_TEST_REFUSED(nxd_module_find_parameter(root.get(), "block.gama", &none), kBad, "block.gamma");
  NXD_TEST_CHECK(none == nullptr);
  NXD_TEST_REFUSED(nxd_module_find_module(root.get(), "block.input_nrm", &module), kBad,
                   "input_norm");
  NXD_TEST_CHECK(module == nullptr);
  for (const char* taken : {"block", "alpha"}) {
    const int64_t two = 2;
    NXD_TEST_REFUSED(nxd_module_add_child(root.get(), taken, norm.get()), kBad, "taken");
    NXD_TEST_REFUSED(nxd_module_add_parameter(root.get(), taken, &two, 1, nullptr, nullptr), kBad,
                     "taken");
  }
  for (const char* wrong : {"", "a.b", "."}) {
    NXD_TEST_REFUSED(nxd_module_add_child(root.get(), wrong, norm.get()), kBad, "name");
  }
  NXD_TEST_REFUSED(nxd_module_add_child(block.get(), "up", root.get()), kBad, "descendant");
  NXD_TEST_REFUSED(nxd_module_add_child(root.get(), "self", root.get()), kBad, "descendant");
}

void test_names(void**) { nxd_test_run_ranks(1, 1, names, nullptr); }

// ---- handles that are lent

// Gives its input's handle away, or the same new handle twice.
nxd_status_t wrong_handles(nxd_module_t*, nxd_tensor_t* const* inputs, size_t,
                           nxd_tensor_t** outputs, size_t n_outputs, void*) {
  if (n_outputs == 1) {
    outputs[0] = inputs[0];
  } else {
    NXD_TEST_OK(nxd_tensor_retain(inputs[0], &outputs[0]));
    outputs[1] = outputs[0];
  }
  return NXD_OK;
}

// A forked child is told so by a parameter's handle, also when it asks for it first.
void check_forked(nxd_parameter_t* parameter) {
  const pid_t child = fork();
  if (child == 0) {
    nxd_tensor_t* shard = nullptr;
    int32_t ndim = 0;
    int wrong = nxd_parameter_get_tensor(parameter, &shard) != NXD_OK;
    wrong += nxd_tensor_get_ndim(shard, &ndim) != NXD_ERROR_INVALID_STATE;
    _exit(wrong);
  }
  int status = -1;
  NXD_TEST_CHECK(waitpid(child, &status, 0) == child);
  NXD_TEST_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// A parameter has one handle, and so has its tensor; both stay when the tensor is replaced.
void lent_handles(nxd_context_t* ctx, int, int, void*) {
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Wrong", wrong_handles, nullptr, nullptr, module.out()));
  nxd_parameter_t* parameter = add(module, "weight", {2, 3});
  check_forked(parameter);
  nxd_tensor_t* shard = shard_of(parameter);
  for (const nxd_device_t device : {NXD_DEVICE_META, NXD_DEVICE_CPU}) {
    NXD_TEST_OK(nxd_move_model_to_device(module.get(), device));
    nxd_device_t found = NXD_DEVICE_INVALID;
    NXD_TEST_OK(nxd_tensor_get_device(shard, &found));
    NXD_TEST_CHECK(found == device);
    NXD_TEST_CHECK(find(module, "weight") == parameter && shard_of(parameter) == shard);
  }
  nxd_module_t *self = nullptr, *again = nullptr;
  NXD_TEST_OK(nxd_module_find_module(module.get(), "", &self));
  NXD_TEST_OK(nxd_module_find_module(self, "", &again));
  NXD_TEST_CHECK(self && self == again && self != module.get());

  const Tensor x = wave({2, 3}, NXD_DTYPE_F32, 1);
  nxd_tensor_t *in = x.get(), *out[2] = {};
  NXD_TEST_REFUSED(nxd_module_forward(module.get(), &in, 1, out, 1), kBad, "borrowed handle");
  NXD_TEST_REFUSED(nxd_module_forward(module.get(), &in, 1, out, 2), kBad, "of another result");
  NXD_TEST_CHECK(x.count() == 6);
}

void test_lent_handles(void**) { nxd_test_run_ranks(1, 1, lent_handles, nullptr); }

// ---- gradients

struct Hook {
  int calls = 0;
  int destroyed = 0;
  double seen = 0;
  nxd_status_t status = NXD_OK;
};

nxd_status_t on_gradient(nxd_parameter_t* parameter, void* user_data) {
  auto* hook = static_cast<Hook*>(user_data);
  ++hook->calls;
  const Tensor grad = grad_of(parameter);
  hook->seen = grad ? max_abs(values(grad)) : -1;
  return hook->status;
}

void drop_hook(void* user_data) { ++static_cast<Hook*>(user_data)->destroyed; }

void hooks(nxd_context_t* ctx, int, int, void*) {
  Hook first, second;
  {
    Module layer;
    NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 8, nullptr, layer.out()));
    nxd_parameter_t* weight = find(layer, "weight");
    NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, on_gradient, &first, drop_hook));
    // The weight is used twice in one graph: one call, with all of the gradient.
    const Tensor x = wave({4, 8}, NXD_DTYPE_F32, 1);
    const auto pass = [&] { return layer({layer({x})}); };
    const auto most = [&] { return max_abs(values(grad_of(weight))); };
    backward(pass(), wave({4, 8}, NXD_DTYPE_F32, 2));
    NXD_TEST_CHECK(first.calls == 1 && first.seen == most());
    backward(pass(), wave({4, 8}, NXD_DTYPE_F32, 2));
    NXD_TEST_CHECK(first.calls == 2 && first.seen == most());
    NXD_TEST_OK(nxd_module_zero_grad(layer.get()));
    NXD_TEST_CHECK(!grad_of(weight));

    // A hook's failure is that of the backward pass.
    first.status = NXD_ERROR_USER;
    const Tensor y = pass();
    nxd_tensor_t* out = y.get();
    const Tensor g = wave({4, 8}, NXD_DTYPE_F32, 2);
    nxd_tensor_t* grad = g.get();
    NXD_TEST_REFUSED(nxd_backward(&out, &grad, 1, 0), NXD_ERROR_USER, "gradient hook");
    NXD_TEST_CHECK(first.calls == 3);

    NXD_TEST_CHECK(first.destroyed == 0);
    NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, on_gradient, &second, drop_hook));
    NXD_TEST_CHECK(first.destroyed == 1);
    backward(pass(), g);
    NXD_TEST_CHECK(first.calls == 3 && second.calls == 1);
    NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, nullptr, nullptr, nullptr));
    NXD_TEST_CHECK(second.destroyed == 1);
    backward(pass(), g);
    NXD_TEST_CHECK(second.calls == 1);
    NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, on_gradient, &second, drop_hook));
    // Data without a hook are let go at once, as those of the hook that goes are.
    NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, nullptr, &first, drop_hook));
    NXD_TEST_CHECK(second.destroyed == 2 && first.destroyed == 2);
    NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, on_gradient, &second, drop_hook));
  }
  NXD_TEST_CHECK(second.destroyed == 3 && first.destroyed == 2);
}

// A hook that removes itself: what it works on is there until it has returned.
struct Once {
  int calls = 0, destroyed = 0, destroyed_inside = 0;
};

nxd_status_t remove_itself(nxd_parameter_t* parameter, void* user_data) {
  auto* once = static_cast<Once*>(user_data);
  ++once->calls;
  NXD_TEST_OK(nxd_parameter_set_grad_hook(parameter, nullptr, nullptr, nullptr));
  once->destroyed_inside = once->destroyed;
  return NXD_OK;
}

void hook_once(nxd_context_t* ctx, int, int, void*) {
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 8, nullptr, layer.out()));
  Once once;
  const nxd_destroy_fn destroy = [](void* data) { ++static_cast<Once*>(data)->destroyed; };
  NXD_TEST_OK(nxd_parameter_set_grad_hook(find(layer, "weight"), remove_itself, &once, destroy));
  const Tensor x = wave({4, 8}, NXD_DTYPE_F32, 1), g = wave({4, 8}, NXD_DTYPE_F32, 2);
  backward(layer({x}), g);
  NXD_TEST_CHECK(once.calls == 1 && once.destroyed_inside == 0 && once.destroyed == 1);
  backward(layer({x}), g);
  NXD_TEST_CHECK(once.calls == 1);
}

void test_hooks(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, hooks, nullptr);
  nxd_test_run_ranks(1, 1, hook_once, nullptr);
}

void freezing(nxd_context_t* ctx, int, int, void*) {
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 8, nullptr, layer.out()));
  nxd_parameter_t *weight = find(layer, "weight"), *bias = find(layer, "bias");
  const Tensor x = wave({4, 8}, NXD_DTYPE_F32, 1), g = wave({4, 8}, NXD_DTYPE_F32, 2);
  Hook hook;
  NXD_TEST_OK(nxd_parameter_set_trainable(weight, 0));
  NXD_TEST_REFUSED(nxd_parameter_set_grad_hook(weight, on_gradient, &hook, drop_hook),
                   NXD_ERROR_INVALID_STATE, "frozen");
  NXD_TEST_CHECK(hook.destroyed == 0);  // rejected, so it stays the caller's
  backward(layer({x}), g);
  NXD_TEST_CHECK(!grad_of(weight) && grad_of(bias));
  NXD_TEST_OK(nxd_parameter_set_trainable(weight, 1));
  NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, on_gradient, &hook, drop_hook));
  backward(layer({x}), g);
  NXD_TEST_CHECK(grad_of(weight) && hook.calls == 1);
  // Frozen and freed again, the hook is still there.
  NXD_TEST_OK(nxd_parameter_set_trainable(weight, 0));
  backward(layer({x}), g);
  NXD_TEST_CHECK(hook.calls == 1);
  NXD_TEST_OK(nxd_parameter_set_trainable(weight, 1));
  backward(layer({x}), g);
  NXD_TEST_CHECK(hook.calls == 2);
}

void test_freezing(void**) { nxd_test_run_ranks(1, 1, freezing, nullptr); }

// ---- whole parameters

void whole_values(nxd_context_t* ctx, int rank, int size, void*) {
  const Module root = container(ctx);
  for (const int dim : {-1, 0, 1}) {
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
      const std::string name = "p" + std::to_string(dim + 1) + "_" + std::to_string(dtype);
      nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
      options.dtype = dtype;
      options.has_shard_dim = dim >= 0;
      options.shard_dim = dim;
      nxd_parameter_t* parameter = add(root, name.c_str(), {8, 12}, options);
      NXD_TEST_CHECK(max_abs(shard_values(parameter)) == 0);  // the default: zeros
      const Tensor value = wave({8, 12}, dtype, 3);
      // Any float dtype is taken, and rounded to the parameter's.
      NXD_TEST_OK(nxd_parameter_set_full(parameter, to(value, NXD_DTYPE_F64).get()));
      NXD_TEST_CHECK(max_difference(whole(parameter), value) == 0);
      NXD_TEST_CHECK(shard_values(parameter) == values(part(value, dim, rank, size)));
      NXD_TEST_CHECK(!whole_grad(parameter));

      int64_t shape[2] = {};
      size_t ndim = 0, ranges = 0;
      int32_t split = 7;
      int64_t begin = -1, end = -1;
      NXD_TEST_OK(nxd_parameter_get_global_shape(parameter, shape, 2, &ndim));
      NXD_TEST_CHECK(ndim == 2 && shape[0] == 8 && shape[1] == 12);
      NXD_TEST_OK(nxd_parameter_get_shard(parameter, &split, &begin, &end, 1, &ranges));
      NXD_TEST_CHECK(split == dim);
      if (dim >= 0) {
        const int64_t extent = shape[dim] / size;
        NXD_TEST_CHECK(ranges == 1 && begin == rank * extent && end == begin + extent);
      }
      const Tensor grad = part(wave({8, 12}, dtype, 4), dim, rank, size);
      NXD_TEST_OK(nxd_tensor_set_grad(shard_of(parameter), leaf(grad, dtype, false).get()));
      NXD_TEST_CHECK(max_difference(whole_grad(parameter), wave({8, 12}, dtype, 4)) == 0);
    }
  }
  nxd_parameter_t* parameter = find(root, "p1_0");
  const std::vector<double> before = shard_values(parameter);
  NXD_TEST_REFUSED(nxd_parameter_set_full(parameter, wave({12, 8}, NXD_DTYPE_F32, 1).get()), kBad,
                   "[8, 12]");
  NXD_TEST_REFUSED(nxd_parameter_set_full(parameter, wave({4, 12}, NXD_DTYPE_F32, 1).get()), kBad,
                   "[8, 12]");
  const Tensor ints = from_ints(std::vector<int64_t>(96, 1), {8, 12});
  NXD_TEST_REFUSED(nxd_parameter_set_full(parameter, ints.get()), kBad, "float dtype");
  NXD_TEST_CHECK(shard_values(parameter) == before);
}

void test_whole_values(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, whole_values, nullptr);
}

// ---- lifetimes

void lifetimes(nxd_context_t* ctx, int, int, void*) {
  // A parent keeps its child; a graph keeps the weights; borrowed handles last as long as the root.
  Scaled data;
  Module root = container(ctx);
  nxd_parameter_t* scale = nullptr;
  {
    const Module module = scaled(ctx, &data);
    NXD_TEST_OK(nxd_module_add_child(root.get(), "scaled", module.get()));
    scale = find(module, "scale");
  }
  NXD_TEST_CHECK(data.destroyed == 0);
  NXD_TEST_CHECK(shard_values(scale)[0] == 3);
  nxd_module_t* borrowed = nullptr;
  NXD_TEST_OK(nxd_module_find_module(root.get(), "scaled", &borrowed));
  // A borrowed handle makes a parent of its own good.
  Module other = container(ctx);
  NXD_TEST_OK(nxd_module_add_child(other.get(), "same", borrowed));
  root = Module();
  NXD_TEST_CHECK(data.destroyed == 0);
  const Tensor x = leaf(wave({3, 8}, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
  nxd_module_t* again = nullptr;
  NXD_TEST_OK(nxd_module_find_module(other.get(), "same", &again));
  nxd_tensor_t *in = x.get(), *y = nullptr;
  NXD_TEST_OK(nxd_module_forward(again, &in, 1, &y, 1));
  const Tensor out(y);
  other = Module();
  NXD_TEST_CHECK(data.destroyed == 1);
  backward(out, wave({3, 12}, NXD_DTYPE_F32, 1));
  NXD_TEST_CHECK(max_abs(values(x.grad())) > 0);
}

void test_lifetimes(void**) {
  nxd_test_run_ranks(1, 1, lifetimes, nullptr);
  nxd_test_run_ranks(2, 2, lifetimes, nullptr);
}

// The context goes first, then module, tensors and tape in any order.
void test_any_order(void**) {
  for (int order = 0; order < 6; ++order) {
    nxd_store_t* store = nullptr;
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    assert_int_equal(nxd_store_create_local(&store), NXD_OK);
    options.rendezvous = NXD_RENDEZVOUS_STORE;
    options.size = 1;
    options.store = store;
    nxd_context_t* ctx = nullptr;
    assert_int_equal(nxd_context_create(&options, &ctx), NXD_OK);
    assert_int_equal(nxd_init_model_parallel(ctx, nullptr), NXD_OK);
    nxd_module_t* module = nullptr;
    assert_int_equal(nxd_layer_create_gated_mlp(ctx, 8, 16, nullptr, &module), NXD_OK);
    Tensor x = leaf(wave({3, 8}, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
    nxd_tensor_t *in = x.get(), *y = nullptr, *taped = nullptr;
    nxd_tape_t* tape = nullptr;
    assert_int_equal(nxd_module_forward(module, &in, 1, &y, 1), NXD_OK);
    assert_int_equal(nxd_module_forward_tape(module, &in, 1, &taped, 1, &tape), NXD_OK);
    const std::vector<std::function<void()>> destroys = {[&] { nxd_context_destroy(ctx); },
                                                         [&] { nxd_module_destroy(module); },
                                                         [&] { nxd_tape_destroy(tape); }};
    const size_t first = static_cast<size_t>(order) / 2, step = 1 + static_cast<size_t>(order) % 2;
    for (size_t i = 0; i < 3; ++i) destroys[(first + i * step) % 3]();
    nxd_store_destroy(store);
    double item = 0;
    const Tensor sum = op("sum", {{"self", Tensor(y)}});
    assert_int_equal(nxd_tensor_get_item(sum.get(), &item), NXD_OK);
    assert_true(std::isfinite(item));
    nxd_tensor_destroy(taped);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_callback_module), cmocka_unit_test(test_failing_callbacks),
      cmocka_unit_test(test_names),           cmocka_unit_test(test_hooks),
      cmocka_unit_test(test_freezing),        cmocka_unit_test(test_whole_values),
      cmocka_unit_test(test_lifetimes),       cmocka_unit_test(test_any_order),
      cmocka_unit_test(test_lent_handles),
  };
  return cmocka_run_group_tests_name("modules", tests, nullptr, nullptr);
}
