#pragma once

#include "core/kernels/attention.h"
#include "core/kernels/attention_plan.h"

// attention_forward and attention_backward in tiles of registers, of dtypes that
// has_attention_tiles() knows.
namespace nxd::kernels {

void attention_forward_tiled(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                             const HeadView& v, const HeadView& out, float* statistics);

void attention_backward_tiled(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                              const HeadView& v, const HeadView& out, const float* statistics,
                              const HeadView& dout, const HeadView& dq, const HeadView& dk,
                              const HeadView& dv);

}  // namespace nxd::kernels
