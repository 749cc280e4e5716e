#include "engine/functional/mappings.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/ops/collectives.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The operation of a mapping along its dimension.
enum class Move { kIdentity, kAllReduce, kSplit, kAllGather, kReduceScatter };

at::Tensor move(ProcessGroup& group, Move kind, const at::Tensor& x, int64_t dim) {
  switch (kind) {
    case Move::kIdentity: return x.view_as(x);
    case Move::kAllReduce: return all_reduce(group, x);
    case Move::kSplit: return split(group, x, dim);
    case Move::kAllGather: return all_gather(group, x, dim);
    case Move::kReduceScatter: return reduce_scatter(group, x, dim);
  }
  fail(NXD_ERROR_INTERNAL, "no such move");
}

struct MappingPlan : torch::CustomClassHolder {
  GroupRef group;
  Move forward = Move::kIdentity;
  Move backward = Move::kIdentity;
  int64_t dim = 0;
};

struct Mapping : torch::autograd::Function<Mapping> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<MappingPlan>& plan) {
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return move(*plan->group, plan->forward, x, plan->dim);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto plan =
        c10::static_intrusive_pointer_cast<MappingPlan>(ctx->saved_data["plan"].toCapsule());
    return {move(*plan->group, plan->backward, grads[0], plan->dim), at::Tensor()};
  }
};

at::Tensor map(const char* name, const GroupRef& group, const at::Tensor& x, int64_t dim,
               Move forward, Move backward) {
  if (group->size() == 1) return x;
  auto plan = c10::make_intrusive<MappingPlan>();
  plan->group = group;
  plan->forward = forward;
  plan->backward = backward;
  plan->dim = dim;
  return call_opaque(name, {x}, [plan](const variable_list& inputs) {
    return variable_list{Mapping::apply(inputs[0], plan)};
  })[0];
}

}  // namespace

at::Tensor copy_to_region(const GroupRef& group, const at::Tensor& x) {
  return map("copy_to_region", group, x, 0, Move::kIdentity, Move::kAllReduce);
}

at::Tensor reduce_from_region(const GroupRef& group, const at::Tensor& x) {
  return map("reduce_from_region", group, x, 0, Move::kAllReduce, Move::kIdentity);
}

at::Tensor scatter_to_region(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  // Splitting asks nothing of other ranks, so this rank alone rejects.
  const int64_t positive = dim < 0 ? dim + x.dim() : dim;
  check_argument(positive >= 0 && positive < x.dim(),
                 "scatter: dim: expected a dimension of a tensor with ", x.dim(),
                 " dimensions, got ", dim);
  return map("scatter_to_region", group, x, positive, Move::kSplit, Move::kAllGather);
}

at::Tensor gather_from_region(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  return map("gather_from_region", group, x, check_dim(*group, "all_gather", x, dim),
             Move::kAllGather, Move::kSplit);
}

at::Tensor gather_to_model_parallel(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  return map("gather_to_model_parallel", group, x, check_dim(*group, "all_gather", x, dim),
             Move::kAllGather, Move::kReduceScatter);
}

at::Tensor reduce_scatter_to_region(const GroupRef& group, const at::Tensor& x, int64_t dim) {
  return map("reduce_scatter_to_region", group, x, check_dim(*group, "reduce_scatter", x, dim),
             Move::kReduceScatter, Move::kAllGather);
}

}  // namespace nxd
