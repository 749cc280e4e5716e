#include "engine/module/full_parameter.h"

#include <ATen/ATen.h>

#include "core/comm/take_for_call.h"
#include "core/layout/shard_gather.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/collectives.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

// communicates: whether the other ranks come to a collective.
void check_together(const Parameter& parameter, bool communicates, const OwnCheck& check) {
  if (!check) return;
  const GroupOfShards& group = parameter.shard_group();
  if (!communicates || !group) return check();
  check_with_group(*group, "gather_full", check);
}

at::Tensor gather(const Parameter& parameter, const at::Tensor& local, const OwnCheck& check = {}) {
  check_not_tracing("the whole value of a parameter");
  at::NoGradGuard no_grad;
  const ShardSpec& shard = parameter.shard();
  check_together(parameter, shard.dim() >= 0, [&] {
    if (check) check();
    check_argument(!local.is_meta(), "parameter ", parameter.canonical_name(),
                   ": has no values on the meta device");
  });
  // Values of the recorded device come to the CPU, where files and callers take them from.
  at::Tensor own = is_recorded(local) ? local.to(at::kCPU) : at::Tensor();
  if (shard.dim() < 0) {
    return own.defined() ? own : local.detach().clone(at::MemoryFormat::Contiguous);
  }
  at::Tensor full;
  take_for_call(parameter.shard_group().get(), "gather_full", [&] {
    if (!own.defined()) own = local.detach().contiguous();
    full = at::zeros(shard.shape(), own.options());
  });
  gather_shards(parameter.shard_group().get(), shard, to_nxd_dtype(own.scalar_type()),
                own.data_ptr(), full.data_ptr());
  return full;
}

}  // namespace

at::Tensor gather_full(const Parameter& parameter, const OwnCheck& check) {
  return gather(parameter, parameter.tensor(), check);
}

at::Tensor gather_full_grad(const Parameter& parameter, const OwnCheck& check) {
  check_together(parameter, true, check);
  enum : int32_t { kNone, kPlain, kMain };
  const at::Tensor& grad = parameter.gradient();
  int32_t form = !grad.defined() ? kNone : parameter.has_main_grad() ? kMain : kPlain;
  const GroupOfShards& group = parameter.shard_group();
  if (group && group->size() > 1) {
    group->run(Call::all_reduce(&form, &form, 1, NXD_DTYPE_I32, NXD_REDUCE_MAX));
  }
  if (form == kNone) return {};
  if (grad.defined()) return gather(parameter, grad);
  const at::ScalarType dtype = form == kMain ? at::kFloat : parameter.tensor().scalar_type();
  at::Tensor zeros;
  take_for_call(parameter.shard().dim() < 0 ? nullptr : group.get(), "gather_full",
                [&] { zeros = at::zeros(parameter.tensor().sizes(), at::TensorOptions(dtype)); });
  return gather(parameter, zeros);
}

}  // namespace nxd
