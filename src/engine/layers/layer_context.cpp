#include "engine/layers/layer_context.h"

#include "engine/layers/layer_support.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

thread_local bool init_is_deferred = false;

}  // namespace

bool is_init_deferred() noexcept { return init_is_deferred; }
void set_init_deferred(bool deferred) noexcept { init_is_deferred = deferred; }

LayerContext LayerContext::make(std::shared_ptr<Context> context, const char* path,
                                nxd_dtype_t dtype, nxd_device_t device, bool sequence_parallel) {
  const at::Device place = to_device(device);
  return {std::move(context),
          path ? path : "",
          parameter_scalar_type(dtype),
          init_is_deferred ? at::Device(at::kMeta) : place,
          place.is_meta() ? at::Device(at::kCPU) : place,
          sequence_parallel};
}

LayerContext LayerContext::child(const std::string& name) const {
  LayerContext out = *this;
  out.path = join_path(path, name);
  return out;
}

LayerContext LayerContext::with(const WeightInit& other) const {
  LayerContext out = *this;
  out.init = other;
  return out;
}

GroupRef LayerContext::group() const { return tensor_group(*context); }

Parameter& make_parameter(Module& owner, const LayerContext& at, const std::string& name,
                          ShardSpec shard, const Initializer& initializer) {
  const std::string path = join_path(at.path, name);
  try {
    auto parameter =
        std::make_shared<Parameter>(path, shard, initializer, at.dtype, at.device, at.home);
    parameter->initialize(owner.context()->seed(), parameter->canonical_name());
    return owner.add_parameter(name, std::move(parameter));
  } catch (const Error& error) {
    if (error.status() != NXD_ERROR_OUT_OF_MEMORY) throw;
    fail(NXD_ERROR_OUT_OF_MEMORY, "parameter ", path, " of shape ", shape_text(shard.shape()),
         ", here ", shape_text(shard.local_shape()), ": ", error.what());
  }
}

Module::Tensors Container::forward(const Tensors&, size_t) {
  fail(NXD_ERROR_UNSUPPORTED, class_name(), ": runs as part of its model only");
}

}  // namespace nxd
