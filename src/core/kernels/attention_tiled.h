#pragma once

#include "core/kernels/attention.h"
#include "core/kernels/attention_plan.h"

// attention_forward and attention_backward in tiles of registers that multiply numbers of
// tile_dtype, which has_attention_tiles() knows: the plan's dtype, or F32 for either dtype.
namespace nxd::kernels {

void attention_forward_tiled(const AttentionPlan& plan, nxd_dtype_t tile_dtype, const HeadView& q,
                             const HeadView& k, const HeadView& v, const HeadView& out,
                             float* statistics);

void attention_backward_tiled(const AttentionPlan& plan, nxd_dtype_t tile_dtype, const HeadView& q,
                              const HeadView& k, const HeadView& v, const HeadView& out,
                              const float* statistics, const HeadView& dout, const HeadView& dq,
                              const HeadView& dk, const HeadView& dv);

}  // namespace nxd::kernels
