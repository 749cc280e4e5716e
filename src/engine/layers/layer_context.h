#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/layout/initializer.h"
#include "engine/functional/mappings.h"
#include "engine/module/module.h"

namespace nxd {

// Surroundings of a new layer: a model gives them once, and each of its layers takes them.
struct LayerContext {
  std::shared_ptr<Context> context;
  std::string path{};                 // canonical name; initial values are drawn by it
  at::ScalarType dtype = at::kFloat;  // of parameters
  at::Device device = at::kCPU;       // of parameters; on the meta device they have no values yet
  at::Device home = at::kCPU;         // of values that come later
  bool sequence_parallel = false;     // outside of tensor-parallel layers activations are slices
  WeightInit init{};

  // F32, F64 or BF16 on the CPU, the recorded or the meta device: on the last while this thread
  // defers initialisation.
  static LayerContext make(std::shared_ptr<Context> context, const char* path, nxd_dtype_t dtype,
                           nxd_device_t device, bool sequence_parallel);

  // The same for a layer below, and with another start.
  LayerContext child(const std::string& name) const;
  LayerContext with(const WeightInit& other) const;

  // The tensor-parallel group; INVALID_STATE before nxd_init_model_parallel.
  GroupRef group() const;
};

// True while this thread makes its modules on the meta device.
bool is_init_deferred() noexcept;
void set_init_deferred(bool deferred) noexcept;

// Makes a layer below parent, at its place.
template <class Layer, class... Arguments>
std::shared_ptr<Layer> add_layer(Module& parent, const LayerContext& at, const std::string& name,
                                 Arguments&&... arguments) {
  auto layer = std::make_shared<Layer>(at.child(name), std::forward<Arguments>(arguments)...);
  parent.add_child(name, layer);
  return layer;
}

// Makes a parameter, draws its initial value with the context's seed, and adds it.
Parameter& make_parameter(Module& owner, const LayerContext& at, const std::string& name,
                          ShardSpec shard, const Initializer& initializer);

// A node that only holds others, and parameters that its owner uses.
class Container : public Module {
 public:
  Container(const LayerContext& at, const char* class_name) : Module(at.context, class_name) {}

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
};

}  // namespace nxd
