// nxd/module.h: modules and parameters.
#include "capi/checkpoint_handles.h"
#include "capi/engine_handles.h"
#include "capi/user_data.h"
#include "core/base/last_error.h"
#include "engine/layers/caller_parameter.h"
#include "engine/layers/layer_context.h"
#include "engine/module/buffers.h"
#include "engine/module/callback_module.h"
#include "engine/module/full_parameter.h"
#include "engine/module/module_tree.h"
#include "engine/module/sequential.h"
#include "engine/ops/collectives.h"
#include "engine/training/model_state.h"

using namespace nxd;

namespace {

const std::vector<std::string>& names_of(const LoadReport& report, nxd_mismatch_t kind) {
  switch (kind) {
    case NXD_MISMATCH_MISSING: return report.missing;
    case NXD_MISMATCH_UNEXPECTED: return report.unexpected;
    case NXD_MISMATCH_SHAPE: return report.shape;
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "kind: expected an NXD_MISMATCH_*, got ", kind);
  }
}

// A forward's inputs, once check has passed. The peers, which go on to the module's layers, are
// told of inputs that are none in their next call of the tensor-parallel group.
Module::Tensors inputs_of(const Module& module, nxd_tensor_t* const* inputs, size_t num_inputs,
                          const std::function<void()>& check) {
  return check_with_peers(*module.context(), "forward", [&] {
    check();
    return unwrap_tensors(inputs, num_inputs, "inputs");
  });
}

const nxd_parameter_options_t kParameterDefaults = NXD_PARAMETER_OPTIONS_INIT;

// A forward that calls back with handles; empty without a callback. The module keeps the user data.
CallbackModule::Forward with_handles(nxd_forward_fn forward, void* user_data,
                                     const std::string& class_name) {
  if (!forward) return {};
  return [forward, user_data, name = class_name + ": forward"](
             Module& self, const Module::Tensors& inputs, size_t n_outputs) {
    const BorrowedHandles in(inputs);
    OwnedHandles out(n_outputs);
    nxd_module_t* const own = borrow_module(self);
    CallbackWatch().run(
        [&] { return forward(own, in.data(), in.size(), out.data(), out.size(), user_data); },
        name.c_str());
    const size_t filled = out.filled();
    check_argument(filled == n_outputs, name, " filled ", filled, " of ", n_outputs, " outputs");
    return out.take([&](const auto* each) { return in.contains(each); }, name, true);
  };
}

// A hook that calls back with the handle of the parameter; empty without one. It keeps the user
// data.
GradientHooks::Hook with_handle(nxd_grad_hook_fn hook, const std::shared_ptr<UserData>& user) {
  if (!hook) return {};
  return [hook, user](Parameter& parameter) {
    nxd_parameter_t* const own = borrow_parameter(parameter);
    CallbackWatch().run([&] { return hook(own, user->data); },
                        ("parameter " + parameter.canonical_name() + ": gradient hook").c_str());
  };
}

// Initial values that a callback gives; empty without one. They keep the user data.
InitialValues by_callback(nxd_initializer_fn initializer, const std::shared_ptr<UserData>& user) {
  if (!initializer) return {};
  return [initializer, user](const std::string& name, const ShardSpec::Shape& shape, int64_t first,
                             double* values, size_t count) {
    CallbackWatch().run(
        [&] {
          return initializer(name.c_str(), shape.data(), shape.size(), first, values, count,
                             user->data);
        },
        ("parameter " + name + ": initializer").c_str());
  };
}

}  // namespace

nxd_status_t nxd_module_create(nxd_context_t* ctx, const char* class_name, nxd_forward_fn forward,
                               void* user_data, nxd_destroy_fn destroy, nxd_module_t** out_module) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    const std::string name = unwrap_text(class_name, "class_name");
    const auto user = std::make_shared<UserData>(user_data);
    out = new_handle(std::make_shared<CallbackModule>(
        context, name, with_handles(forward, user_data, name), user));
    user->destroy = destroy;
  });
}

nxd_status_t nxd_module_create_sequential(nxd_context_t* ctx, nxd_module_t* const* children,
                                          size_t num_children, nxd_module_t** out_module) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    check_array(children, num_children, "children");
    std::vector<std::shared_ptr<Module>> given;
    for (size_t i = 0; i < num_children; ++i) {
      given.push_back(unwrap(children[i], text("children[", i, "]").c_str()).shared_from_this());
    }
    out = new_handle(make_sequential(context, given));
  });
}

void nxd_module_destroy(nxd_module_t* module) {
  const Uncancelled whole_call;
  delete module;
}

nxd_status_t nxd_module_add_child(nxd_module_t* parent, const char* name, nxd_module_t* child) {
  return guard([&] {
    unwrap(child, "child");
    unwrap(parent, "parent").add_child(unwrap_text(name, "name"), child->value->shared_from_this());
  });
}

nxd_status_t nxd_parameter_options_init(nxd_parameter_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kParameterDefaults, "options"); });
}

nxd_status_t nxd_module_add_parameter(nxd_module_t* module, const char* name,
                                      const int64_t* global_shape, int32_t ndim,
                                      const nxd_parameter_options_t* options,
                                      nxd_parameter_t** out_parameter) {
  return guard([&] {
    if (out_parameter) *out_parameter = nullptr;
    Module& self = unwrap(module, "module");
    check_argument(ndim >= 0 && ndim <= 64, "ndim: expected 0 to 64 sizes of global_shape, got ",
                   ndim);
    check_argument(global_shape != nullptr || ndim == 0, "global_shape: expected ", ndim,
                   " sizes, got NULL");
    const auto known = read_options(options, kParameterDefaults, "options");
    const bool split = flag(known.has_shard_dim, "has_shard_dim");
    check_argument(!split || (known.shard_dim >= 0 && known.shard_dim < ndim),
                   "shard_dim: expected 0 to ", ndim - 1, ", got ", known.shard_dim);
    LayerContext at = LayerContext::make(self.context(), "", known.dtype, known.device,
                                         flag(known.sequence_parallel, "sequence_parallel"));
    at.init = {known.init, known.init_a, known.init_b};
    Parameter& parameter = add_caller_parameter(self, at, unwrap_text(name, "name"),
                                                ShardSpec::Shape(global_shape, global_shape + ndim),
                                                split ? known.shard_dim : -1);
    if (out_parameter) *out_parameter = borrow_parameter(parameter);
  });
}

nxd_status_t nxd_module_add_buffer(nxd_module_t* module, const char* name, nxd_tensor_t* tensor,
                                   int32_t is_saved) {
  return guard([&] {
    Module& self = unwrap(module, "module");
    const bool saved = flag(is_saved, "is_saved");
    add_buffer(self, unwrap_text(name, "name"), unwrap(tensor, "tensor"), saved);
  });
}

nxd_status_t nxd_module_get_buffer_count(nxd_module_t* root, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = named_buffers(unwrap(root, "root")).size();
  });
}

nxd_status_t nxd_module_get_buffer_name(nxd_module_t* root, size_t index, char* buf, size_t cap,
                                        size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    const auto buffers = named_buffers(unwrap(root, "root"));
    check_argument(index < buffers.size(), "index: expected less than ", buffers.size(), ", got ",
                   index);
    copy_text(buffers[index].name, buf, cap, needed);
  });
}

nxd_status_t nxd_module_share_buffer(nxd_module_t* root, const char* name,
                                     nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    Module& self = unwrap(root, "root");
    out = wrap(find_buffer(self, unwrap_text(name, "name"))->value);
  });
}

nxd_status_t nxd_module_tie(nxd_module_t* root, const char* owner_path, const char* alias_path) {
  return guard([&] {
    Module& self = unwrap(root, "root");
    const std::string owner = unwrap_text(owner_path, "owner_path");
    for (const std::shared_ptr<void>& lent :
         tie(self.shared_from_this(), owner, unwrap_text(alias_path, "alias_path"))) {
      if (lent) static_cast<ParameterHandles*>(lent.get())->follow(*find_parameter(self, owner));
    }
  });
}

nxd_status_t nxd_module_forward(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs) {
  return guard([&] {
    if (outputs) clear_outputs(outputs, num_outputs, "outputs");
    const std::shared_ptr<Module> self = hold(module, "module");
    const auto check = [&] { clear_outputs(outputs, num_outputs, "outputs"); };
    wrap_all(self->call(inputs_of(*self, inputs, num_inputs, check), num_outputs), outputs);
  });
}

nxd_status_t nxd_module_forward_tape(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                     size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                     nxd_tape_t** out_tape) {
  return guard([&] {
    clear_each(out_tape);
    if (outputs) clear_outputs(outputs, num_outputs, "outputs");
    const std::shared_ptr<Module> self = hold(module, "module");
    const auto check = [&] {
      clear_outputs(outputs, num_outputs, "outputs");
      output(out_tape, "out_tape");
    };
    auto tape = std::make_unique<nxd_tape>(nxd_tape{
        std::make_shared<Tape>(*self, inputs_of(*self, inputs, num_inputs, check), num_outputs)});
    wrap_all(tape->value->outputs(), outputs);
    *out_tape = tape.release();
  });
}

nxd_status_t nxd_tape_backward(nxd_tape_t* tape, nxd_tensor_t* const* grad_outputs,
                               size_t num_outputs, nxd_tensor_t** out_grad_inputs,
                               size_t num_inputs) {
  return guard([&] {
    if (out_grad_inputs) clear_outputs(out_grad_inputs, num_inputs, "out_grad_inputs");
    const std::shared_ptr<Tape> self = unwrap(tape, "tape").value;  // a hook may destroy the handle
    const Module::Tensors grads = check_with_peers(self->context(), "backward", [&] {
      clear_outputs(out_grad_inputs, num_inputs, "out_grad_inputs");
      check_argument(num_inputs == self->input_count(), "num_inputs: expected ",
                     self->input_count(), ", got ", num_inputs);
      Module::Tensors given = unwrap_tensors(grad_outputs, num_outputs, "grad_outputs");
      self->check(given);
      return given;
    });
    wrap_all(self->backward(grads), out_grad_inputs);
  });
}

void nxd_tape_destroy(nxd_tape_t* tape) {
  const Uncancelled whole_call;
  delete tape;
}

nxd_status_t nxd_module_get_class_name(nxd_module_t* module, const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    out = unwrap(module, "module").class_name().c_str();
  });
}

nxd_status_t nxd_module_find_module(nxd_module_t* root, const char* path,
                                    nxd_module_t** out_module) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    Module& self = unwrap(root, "root");
    out = borrow_module(*find_module(self.shared_from_this(), unwrap_text(path, "path")));
  });
}

nxd_status_t nxd_module_get_child_count(nxd_module_t* module, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(module, "module").children().size();
  });
}

nxd_status_t nxd_module_get_child(nxd_module_t* module, size_t index, nxd_module_t** out_child,
                                  const char** out_name) {
  return guard([&] {
    if (out_child) *out_child = nullptr;
    if (out_name) *out_name = nullptr;
    const auto& children = unwrap(module, "module").children();
    check_argument(index < children.size(), "index: expected less than ", children.size(),
                   " children, got ", index);
    if (out_child) *out_child = borrow_module(*children[index].second);
    if (out_name) *out_name = children[index].first.c_str();
  });
}

nxd_status_t nxd_module_set_training(nxd_module_t* module, int32_t training) {
  return guard([&] { unwrap(module, "module").set_training(flag(training, "training")); });
}

nxd_status_t nxd_module_initialize(nxd_module_t* root, uint64_t seed) {
  return guard([&] { initialize(*hold(root, "root"), seed); });
}

nxd_status_t nxd_parameter_set_initializer(nxd_parameter_t* parameter,
                                           nxd_initializer_fn initializer, void* user_data,
                                           nxd_destroy_fn destroy) {
  return guard([&] {
    Parameter& self = unwrap(parameter, "parameter");
    const auto user = std::make_shared<UserData>(user_data);
    self.set_initial_values(by_callback(initializer, user));
    user->destroy = destroy;
  });
}

nxd_status_t nxd_module_set_initializer(nxd_module_t* root, nxd_initializer_fn initializer,
                                        void* user_data, nxd_destroy_fn destroy) {
  return guard([&] {
    const Module& self = unwrap(root, "root");
    const auto user = std::make_shared<UserData>(user_data);
    set_initial_values(self, by_callback(initializer, user));
    user->destroy = destroy;
  });
}

nxd_status_t nxd_set_deferred_init(int32_t deferred, int32_t* out_previous) {
  return guard([&] {
    const bool on = flag(deferred, "deferred");
    if (out_previous) *out_previous = is_init_deferred() ? 1 : 0;
    set_init_deferred(on);
  });
}

nxd_status_t nxd_move_model_to_device(nxd_module_t* root, nxd_device_t device) {
  return guard([&] { move_to_device(*hold(root, "root"), device); });
}

nxd_status_t nxd_module_cast(nxd_module_t* root, nxd_dtype_t dtype) {
  return guard([&] { cast_parameters(unwrap(root, "root"), dtype); });
}

nxd_status_t nxd_module_get_parameter_count(nxd_module_t* root, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(root, "root").tree_parameters().size();
  });
}

nxd_status_t nxd_module_get_parameter(nxd_module_t* root, size_t index,
                                      nxd_parameter_t** out_parameter, const char** out_name) {
  return guard([&] {
    if (out_parameter) *out_parameter = nullptr;
    if (out_name) *out_name = nullptr;
    const auto& parameters = unwrap(root, "root").tree_parameters();
    check_argument(index < parameters.size(), "index: expected less than ", parameters.size(),
                   " parameters, got ", index);
    if (out_parameter) *out_parameter = borrow_parameter(*parameters[index].parameter);
    if (out_name) *out_name = parameters[index].name.c_str();
  });
}

nxd_status_t nxd_module_find_parameter(nxd_module_t* root, const char* name,
                                       nxd_parameter_t** out_parameter) {
  return guard([&] {
    auto& out = output(out_parameter, "out_parameter");
    out = borrow_parameter(*find_parameter(unwrap(root, "root"), unwrap_text(name, "name")));
  });
}

nxd_status_t nxd_parameter_get_tensor(nxd_parameter_t* parameter, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = &handles_of(unwrap(parameter, "parameter")).tensor;
  });
}

nxd_status_t nxd_parameter_get_global_shape(nxd_parameter_t* parameter, int64_t* shape, size_t cap,
                                            size_t* out_ndim) {
  return guard([&] {
    output(out_ndim, "out_ndim");
    copy_list(unwrap(parameter, "parameter").shard().shape(), shape, cap, out_ndim, "shape");
  });
}

nxd_status_t nxd_parameter_get_shard(nxd_parameter_t* parameter, int32_t* out_dim, int64_t* begins,
                                     int64_t* ends, size_t cap, size_t* out_ranges) {
  return guard([&] {
    clear_each(out_dim, out_ranges);
    auto& dim = output(out_dim, "out_dim");
    output(out_ranges, "out_ranges");
    const ShardSpec& shard = unwrap(parameter, "parameter").shard();
    // Before the other array is written.
    check_argument(cap == 0 || ends != nullptr, "ends: expected room for ", cap, ", got NULL");
    std::vector<int64_t> first, last;
    for (const ShardSpec::Range& range : shard.ranges()) {
      first.push_back(range.begin);
      last.push_back(range.end);
    }
    copy_list(first, begins, cap, out_ranges, "begins");
    copy_list(last, ends, cap, out_ranges, "ends");
    dim = shard.dim();
  });
}

nxd_status_t nxd_parameter_set_full(nxd_parameter_t* parameter, nxd_tensor_t* full) {
  return guard([&] { unwrap(parameter, "parameter").set_full(unwrap(full, "full")); });
}

nxd_status_t nxd_parameter_gather_full(nxd_parameter_t* parameter, nxd_tensor_t** out_full) {
  return guard([&] {
    clear_each(out_full);
    const auto check = [&] { output(out_full, "out_full"); };
    *out_full = wrap(gather_full(unwrap(parameter, "parameter"), check));
  });
}

nxd_status_t nxd_parameter_gather_full_grad(nxd_parameter_t* parameter, nxd_tensor_t** out_full) {
  return guard([&] {
    clear_each(out_full);
    const auto check = [&] { output(out_full, "out_full"); };
    const at::Tensor full = gather_full_grad(unwrap(parameter, "parameter"), check);
    if (full.defined()) *out_full = wrap(full);
  });
}

nxd_status_t nxd_parameter_set_trainable(nxd_parameter_t* parameter, int32_t trainable) {
  return guard([&] {
    unwrap(parameter, "parameter").tensor().set_requires_grad(flag(trainable, "trainable"));
  });
}

nxd_status_t nxd_parameter_set_grad_hook(nxd_parameter_t* parameter, nxd_grad_hook_fn hook,
                                         void* user_data, nxd_destroy_fn destroy) {
  return guard([&] {
    GradientHooks& hooks = unwrap(parameter, "parameter").hooks();
    const auto user = std::make_shared<UserData>(user_data);
    hooks.set_user(with_handle(hook, user));
    user->destroy = destroy;
  });
}

nxd_status_t nxd_module_zero_grad(nxd_module_t* root) {
  return guard([&] { zero_grad(unwrap(root, "root")); });
}

nxd_status_t nxd_load_report_get_count(nxd_load_report_t* report, nxd_mismatch_t kind,
                                       size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = names_of(unwrap(report, "report").value, kind).size();
  });
}

nxd_status_t nxd_load_report_get_name(nxd_load_report_t* report, nxd_mismatch_t kind, size_t index,
                                      const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    const std::vector<std::string>& names = names_of(unwrap(report, "report").value, kind);
    check_argument(index < names.size(), "index: expected less than ", names.size(), ", got ",
                   index);
    out = names[index].c_str();
  });
}

void nxd_load_report_destroy(nxd_load_report_t* report) {
  const Uncancelled whole_call;
  delete report;
}

nxd_status_t nxd_module_load_safetensors(nxd_module_t* root, const char* path, int32_t strict,
                                         nxd_load_report_t** out_report) {
  return guard([&] {
    if (out_report) *out_report = nullptr;
    Module& self = unwrap(root, "root");
    flag(strict, "strict");
    const std::string file = unwrap_text(path, "path");
    auto report = std::make_unique<nxd_load_report>();
    report->value = load_safetensors(self, file, strict == 1);
    const LoadReport copy = report->value;
    if (out_report) *out_report = report.release();
    if (strict == 1) copy.check(file);
  });
}

nxd_status_t nxd_module_save_safetensors(nxd_module_t* root, const char* path) {
  return guard([&] { save_safetensors(unwrap(root, "root"), path); });
}

nxd_status_t nxd_module_snapshot(nxd_module_t* root, nxd_checkpoint_t* checkpoint,
                                 const char* name) {
  return guard([&] {
    add_snapshot(checkpoint, name, [&](Context& context) {
      return snapshot_parameters(unwrap(root, "root"), context);
    });
  });
}
