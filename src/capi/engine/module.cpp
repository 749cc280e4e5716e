// Section 11 of nxd.h: modules.
#include "capi/engine/unwrap.h"
#include "engine/layers/parallel_linear.h"
#include "engine/module/callback_module.h"
#include "engine/module/module_tree.h"

using namespace nxd;

nxd_status_t nxd_module_create(nxd_context_t* ctx, const char* class_name, nxd_forward_fn forward,
                               void* user_data, nxd_destroy_fn destroy, nxd_module_t** out_module) {
  return engine_guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    std::string name = unwrap_text(class_name, "class_name");
    auto handle = std::make_unique<nxd_module>();
    // The module owns user_data from here on, so nothing that can fail may follow.
    handle->value =
        std::make_shared<CallbackModule>(context, std::move(name), forward, user_data, destroy);
    out = handle.release();
  });
}

void nxd_module_destroy(nxd_module_t* module) { delete module; }

nxd_status_t nxd_module_add_child(nxd_module_t* parent, const char* name, nxd_module_t* child) {
  return engine_guard([&] {
    unwrap(child, "child");
    unwrap(parent, "parent").add_child(unwrap_text(name, "name"), child->value->shared_from_this());
  });
}

nxd_status_t nxd_module_forward(nxd_module_t* module, nxd_tensor_t* const* inputs, size_t n_inputs,
                                nxd_tensor_t** outputs, size_t n_outputs) {
  return engine_guard([&] {
    clear_outputs(outputs, n_outputs, "outputs");
    Module& self = unwrap(module, "module");
    wrap_all(self.call(unwrap_tensors(inputs, n_inputs, "inputs"), n_outputs), outputs);
  });
}

nxd_status_t nxd_module_forward_tape(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                     size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs,
                                     nxd_tape_t** out_tape) {
  return engine_guard([&] {
    clear_each(out_tape);
    clear_outputs(outputs, n_outputs, "outputs");
    auto& out = output(out_tape, "out_tape");
    Module& self = unwrap(module, "module");
    auto tape = std::make_unique<nxd_tape>(
        nxd_tape{Tape(self, unwrap_tensors(inputs, n_inputs, "inputs"), n_outputs)});
    wrap_all(tape->value.outputs(), outputs);
    out = tape.release();
  });
}

nxd_status_t nxd_tape_backward(nxd_tape_t* tape, nxd_tensor_t* const* grad_outputs,
                               size_t n_outputs, nxd_tensor_t** out_grad_inputs, size_t n_inputs) {
  return engine_guard([&] {
    clear_outputs(out_grad_inputs, n_inputs, "out_grad_inputs");
    Tape& self = unwrap(tape, "tape").value;
    check_argument(n_inputs == self.input_count(), "n_inputs: expected ", self.input_count(),
                   ", got ", n_inputs);
    wrap_all(self.backward(unwrap_tensors(grad_outputs, n_outputs, "grad_outputs")),
             out_grad_inputs);
  });
}

void nxd_tape_destroy(nxd_tape_t* tape) { delete tape; }

nxd_status_t nxd_module_get_class_name(nxd_module_t* module, const char** out_name) {
  return engine_guard([&] {
    auto& out = output(out_name, "out_name");
    out = unwrap(module, "module").class_name().c_str();
  });
}

nxd_status_t nxd_module_get_module(nxd_module_t* root, const char* path,
                                   nxd_module_t** out_module) {
  return engine_guard([&] {
    auto& out = output(out_module, "out_module");
    Module& self = unwrap(root, "root");
    out = find_module(self.shared_from_this(), unwrap_text(path, "path"))->borrowed_handle();
  });
}

nxd_status_t nxd_module_get_child_count(nxd_module_t* module, size_t* out_count) {
  return engine_guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(module, "module").children().size();
  });
}

nxd_status_t nxd_module_get_child(nxd_module_t* module, size_t index, nxd_module_t** out_child,
                                  const char** out_name) {
  return engine_guard([&] {
    if (out_child) *out_child = nullptr;
    if (out_name) *out_name = nullptr;
    const auto& children = unwrap(module, "module").children();
    check_argument(index < children.size(), "index: expected less than ", children.size(),
                   " children, got ", index);
    if (out_child) *out_child = children[index].second->borrowed_handle();
    if (out_name) *out_name = children[index].first.c_str();
  });
}

nxd_status_t nxd_module_set_training(nxd_module_t* module, int32_t training) {
  return engine_guard([&] { unwrap(module, "module").set_training(training != 0); });
}

nxd_status_t nxd_module_initialize(nxd_module_t* root, uint64_t seed) {
  return engine_guard([&] { initialize(unwrap(root, "root"), seed); });
}

nxd_status_t nxd_module_tie(nxd_module_t* root, const char* owner_path, const char* alias_path) {
  return engine_guard([&] {
    Module& self = unwrap(root, "root");
    tie(self.shared_from_this(), unwrap_text(owner_path, "owner_path"),
        unwrap_text(alias_path, "alias_path"));
  });
}

nxd_status_t nxd_move_model_to_device(nxd_module_t* root, nxd_device_t device) {
  return engine_guard([&] { move_to_device(unwrap(root, "root"), device); });
}

nxd_status_t nxd_module_get_master_weight(nxd_module_t* module, nxd_tensor_t** out_weight) {
  return engine_guard([&] {
    auto& out = output(out_weight, "out_weight");
    auto* layer = dynamic_cast<ParallelLinearLayer*>(&unwrap(module, "module"));
    check_state(layer != nullptr, "module: only parallel linear layers keep a master weight");
    out = layer->master_weight_handle();
  });
}

nxd_status_t nxd_module_zero_grad(nxd_module_t* root) {
  return engine_guard([&] { zero_grad(unwrap(root, "root")); });
}
