#pragma once

#include <functional>
#include <memory>

#include "engine/module/buffers.h"
#include "engine/module/module.h"

namespace nxd {

// A module whose forward is the caller's.
class CallbackModule : public Module, public BufferHolder {
 public:
  using Forward = std::function<Tensors(Module& self, const Tensors& inputs, size_t n_outputs)>;

  // Without a forward it is a mere container. user_data is kept as long as the module.
  CallbackModule(std::shared_ptr<Context> context, std::string class_name, Forward forward,
                 std::shared_ptr<void> user_data);

  bool is_leaf() const override { return false; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  Forward forward_;
  std::shared_ptr<void> user_data_;
};

}  // namespace nxd
