#include "core/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/comm/take_for_call.h"
#include "core/kernels/abs_sum.h"
#include "core/kernels/optimizer_kernels.h"

namespace nxd {
namespace {

// The parts of all ranks, in one call. The order is that of sums over the groups one after the
// other, each in rank order. Ranks of a layout are no sums of steps along its axes: on some
// platforms tensor-parallel groups are rings.
double norm_over_world(const OptimizerGroups& groups, bool over_data, double own, double type) {
  std::vector<double> parts;
  take_for_call(groups.world.get(), "all_gather",
                [&] { parts.resize(static_cast<size_t>(groups.world->size())); });
  groups.world->run(Call::all_gather(&own, parts.data(), 1, NXD_DTYPE_F64));
  const int tensor = groups.tensor->size(), data = groups.data->size();
  const int first_copy = over_data ? 0 : groups.data->rank();
  const auto part_of = [&](int p, int d, int t) {
    const auto place = static_cast<size_t>((p * data + d) * tensor + t);
    return parts[static_cast<size_t>(groups.ranks_by_place[place])];
  };
  const auto over = [type](int begin, int end, const auto& part) {
    double total = 0;
    for (int i = begin; i < end; ++i) total = joined_norm(total, part(i), type);
    return total;
  };
  return over(first_copy, over_data ? data : first_copy + 1, [&](int d) {
    return over(0, groups.pipeline->size(),
                [&](int p) { return over(0, tensor, [&](int t) { return part_of(p, d, t); }); });
  });
}

}  // namespace

double part_of_norm(nxd_dtype_t dtype, int64_t count, const void* gradient, double type) {
  if (std::isinf(type)) return kernels::max_abs(dtype, count, gradient);
  if (type == 1) return kernels::abs_sum(dtype, count, gradient);
  return kernels::sum_of_squares(dtype, count, gradient);
}

double joined_norm(double total, double part, double type) {
  if (!std::isinf(type)) return total + part;
  return std::isnan(part) || part > total ? part : total;
}

double norm_over_ranks(const OptimizerGroups& groups, bool over_data, double own, double type) {
  if (groups.world) return norm_over_world(groups, over_data, own, type);
  const nxd_reduce_t reduce = std::isinf(type) ? NXD_REDUCE_MAX : NXD_REDUCE_SUM;
  for (ProcessGroup* group :
       {groups.tensor.get(), groups.pipeline.get(), over_data ? groups.data.get() : nullptr}) {
    if (!group || group->size() == 1) continue;
    group->run(Call::all_reduce(&own, &own, 1, NXD_DTYPE_F64, reduce));
  }
  return own;
}

GradientFactor factor_of(double joined, const FinishOptions& options) {
  GradientFactor out;
  out.norm = std::fabs(options.scale) * (options.norm_type == 2 ? std::sqrt(joined) : joined);
  out.finite = std::isfinite(out.norm);
  out.factor = options.scale;
  double clip = 1;
  if (out.finite && options.max_norm > 0) {
    clip = std::min(1.0, options.max_norm / (out.norm + 1e-6));
    out.factor *= clip;
  }
  // No element is larger than the norm. If that is beyond F32 the multiplied gradients may be, too.
  // A factor below F32's normal numbers would lose its digits there, or become 0.
  using Limits = std::numeric_limits<float>;
  const bool vanishes = out.norm > 0 && std::fabs(out.factor) < Limits::min();
  if (out.norm * clip > Limits::max() || vanishes) out.finite = false;
  return out;
}

}  // namespace nxd
