#include "engine/functional/mappings.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/tensor_parallel/region_mapping.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/collectives.h"
#include "engine/ops/part_at.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Recorded and traced tensors move too, so these are operations of tensors, not of memory.
at::Tensor move(ProcessGroup& group, RegionMove kind, const at::Tensor& x, int64_t dim,
                uint64_t key = 0) {
  switch (kind) {
    case RegionMove::kCopy: return x.view_as(x);
    case RegionMove::kAllReduce: return all_reduce(group, x);
    case RegionMove::kSplit: return split(group, x, dim);
    case RegionMove::kAllGather: return all_gather(group, x, dim, key);
    case RegionMove::kReduceScatter: return reduce_scatter(group, x, dim);
  }
  fail(NXD_ERROR_INTERNAL, "no such move");
}

struct MappingPlan : torch::CustomClassHolder {
  GroupRef group;
  RegionMoves moves{RegionMove::kCopy, RegionMove::kCopy};
  int64_t dim = 0;
  uint64_t key = 0;  // of the forward's gather; see all_gather()
};

struct Mapping : torch::autograd::Function<Mapping> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<MappingPlan>& plan) {
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return move(*plan->group, plan->moves.forward, x, plan->dim, plan->key);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass("an exchange between regions");
    const auto plan =
        c10::static_intrusive_pointer_cast<MappingPlan>(ctx->saved_data["plan"].toCapsule());
    return {move(*plan->group, plan->moves.backward, grads[0], plan->dim), at::Tensor()};
  }
};

// For tensors on the recorded device; elsewhere a part is a view.
struct OwnPart : torch::autograd::Function<OwnPart> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<MappingPlan>& plan, int64_t size) {
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    ctx->saved_data["extent"] = x.size(plan->dim);
    return device_tensor(record_part_at(value_of(x), plan->dim, plan->group->rank(), size));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass("an exchange between regions");
    const auto plan =
        c10::static_intrusive_pointer_cast<MappingPlan>(ctx->saved_data["plan"].toCapsule());
    const int64_t extent = ctx->saved_data["extent"].toInt();
    return {device_tensor(
                record_placed_part(value_of(grads[0]), plan->dim, plan->group->rank(), extent)),
            at::Tensor(), at::Tensor()};
  }
};

at::Tensor map(const char* name, const GroupRef& group, const at::Tensor& x, int64_t dim,
               nxd_region_mapping_t mapping, uint64_t key = 0) {
  if (group->size() == 1) return x;
  auto plan = c10::make_intrusive<MappingPlan>();
  plan->group = group;
  plan->moves = region_moves(mapping);
  plan->dim = dim;
  plan->key = key;
  return call_opaque(name, {x}, [plan](const variable_list& inputs) {
    return variable_list{Mapping::apply(inputs[0], plan)};
  })[0];
}

}  // namespace

at::Tensor copy_to_region(const GroupRef& group, const at::Tensor& x) {
  return map("copy_to_region", group, x, 0, NXD_REGION_MAPPING_COPY_TO);
}

at::Tensor reduce_from_region(const GroupRef& group, const at::Tensor& x) {
  return map("reduce_from_region", group, x, 0, NXD_REGION_MAPPING_REDUCE_FROM);
}

at::Tensor scatter_to_region(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  // Splitting asks nothing of other ranks, so this rank alone rejects.
  const int64_t positive = dim < 0 ? dim + x.dim() : dim;
  check_argument(positive >= 0 && positive < x.dim(),
                 "scatter: dim: expected a dimension of a tensor with ", x.dim(),
                 " dimensions, got ", dim);
  return map("scatter_to_region", group, x, positive, NXD_REGION_MAPPING_SCATTER_TO);
}

at::Tensor gather_from_region(const GroupRef& group, const at::Tensor& x, int64_t dim,
                              uint64_t key) {
  return map("gather_from_region", group, x, check_dim(*group, "all_gather", x, dim),
             NXD_REGION_MAPPING_GATHER_FROM, key);
}

at::Tensor gather_to_model_parallel(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  return map("gather_to_model_parallel", group, x, check_dim(*group, "all_gather", x, dim),
             NXD_REGION_MAPPING_GATHER_FOR_SHARDS);
}

at::Tensor reduce_scatter_to_region(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  return map("reduce_scatter_to_region", group, x, check_dim(*group, "reduce_scatter", x, dim),
             NXD_REGION_MAPPING_REDUCE_SCATTER_TO);
}

at::Tensor own_part(const GroupRef& group, const at::Tensor& x, int64_t dim, int64_t size) {
  const auto take = [group, dim, size](const variable_list& inputs) {
    const at::Tensor& given = inputs[0];
    if (group->size() == 1 || !is_recorded(given) || is_tracing()) {
      return variable_list{given.narrow(dim, size * group->rank(), size)};
    }
    auto plan = c10::make_intrusive<MappingPlan>();
    plan->group = group;
    plan->dim = dim;
    return variable_list{OwnPart::apply(given, plan, size)};
  };
  return call_opaque("own_part", {x}, take)[0];
}

}  // namespace nxd
