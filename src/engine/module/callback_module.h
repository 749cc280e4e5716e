#pragma once

#include "engine/module/module.h"

namespace nxd {

// A module whose forward is the caller's.
class CallbackModule : public Module {
 public:
  CallbackModule(std::shared_ptr<Context> context, std::string class_name, nxd_forward_fn forward,
                 void* user_data, nxd_destroy_fn destroy);
  ~CallbackModule() override;

  bool can_be_entered() const override { return true; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  nxd_forward_fn forward_;
  void* user_data_;
  nxd_destroy_fn destroy_;
};

}  // namespace nxd
