#include "engine/module/callback_module.h"

namespace nxd {

CallbackModule::CallbackModule(std::shared_ptr<Context> context, std::string class_name,
                               Forward forward, std::shared_ptr<void> user_data)
    : Module(std::move(context), std::move(class_name)),
      forward_(std::move(forward)),
      user_data_(std::move(user_data)) {}

Module::Tensors CallbackModule::forward(const Tensors& inputs, size_t n_outputs) {
  check_state(forward_ != nullptr, class_name(), ": a container without a forward function");
  return forward_(*this, inputs, n_outputs);
}

}  // namespace nxd
