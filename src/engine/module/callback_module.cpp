#include "engine/module/callback_module.h"

#include "core/base/last_error.h"

namespace nxd {

CallbackModule::CallbackModule(std::shared_ptr<Context> context, std::string class_name,
                               nxd_forward_fn forward, void* user_data, nxd_destroy_fn destroy)
    : Module(std::move(context), std::move(class_name)),
      forward_(forward),
      user_data_(user_data),
      destroy_(destroy) {}

CallbackModule::~CallbackModule() {
  if (destroy_) destroy_(user_data_);
}

Module::Tensors CallbackModule::forward(const Tensors& inputs, size_t n_outputs) {
  check_state(forward_ != nullptr, class_name(), ": a container without a forward function");
  std::vector<nxd_tensor> handles(inputs.size());
  std::vector<nxd_tensor*> in(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    handles[i].value = inputs[i];
    in[i] = inputs[i].defined() ? &handles[i] : nullptr;
  }
  std::vector<nxd_tensor*> out(n_outputs, nullptr);
  const CallbackWatch watch;
  const nxd_status_t status = CallbackWatch::answer([&] {
    return forward_(borrowed_handle(), in.data(), in.size(), out.data(), out.size(), user_data_);
  });
  // Outputs that the callback filled are ours, also when it failed.
  Tensors outputs(n_outputs);
  size_t filled = 0;
  for (size_t i = 0; i < n_outputs; ++i) {
    if (!out[i]) continue;
    outputs[i] = out[i]->value;
    delete out[i];
    ++filled;
  }
  watch.check(status, (class_name() + ": forward").c_str());
  check_argument(filled == n_outputs, class_name(), ": forward filled ", filled, " of ", n_outputs,
                 " outputs");
  return outputs;
}

}  // namespace nxd
