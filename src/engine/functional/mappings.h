#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "core/comm/process_group.h"

// Differentiable moves between what the ranks of a group hold alike and what they hold in parts, as
// in Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022). Each is x itself in a group of
// one.
namespace nxd {

using GroupRef = std::shared_ptr<ProcessGroup>;

at::Tensor copy_to_region(const GroupRef& group, const at::Tensor& x);
at::Tensor reduce_from_region(const GroupRef& group, const at::Tensor& x);
at::Tensor scatter_to_region(const GroupRef& group, const at::Tensor& x, int64_t dim);
// key: of the gather; see all_gather().
at::Tensor gather_from_region(const GroupRef& group, const at::Tensor& x, int64_t dim,
                              uint64_t key = 0);
// All ranks' parts along dim, for a consumer that is split over the ranks: the backward sums and
// scatters.
at::Tensor gather_to_model_parallel(const GroupRef& group, const at::Tensor& x, int64_t dim);
at::Tensor reduce_scatter_to_region(const GroupRef& group, const at::Tensor& x, int64_t dim);
// This rank's part along dim, where each rank has one of this size, in rank order from the
// beginning. The gradient is zeros elsewhere: no communication.
at::Tensor own_part(const GroupRef& group, const at::Tensor& x, int64_t dim, int64_t size);

}  // namespace nxd
