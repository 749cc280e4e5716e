#pragma once

#include "core/kernels/attention.h"
#include "core/kernels/attention_plan.h"

// attention_forward and attention_backward of bf16 by oneDNN's products of blocks.
namespace nxd::kernels {

void attention_forward_blocks(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                              const HeadView& v, const HeadView& out, float* statistics);

void attention_backward_blocks(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                               const HeadView& v, const HeadView& out, const float* statistics,
                               const HeadView& dout, const HeadView& dq, const HeadView& dk,
                               const HeadView& dv);

}  // namespace nxd::kernels
