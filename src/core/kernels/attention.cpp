#include "core/kernels/attention.h"

#include "core/base/profiler.h"
#include "core/kernels/attention_blocks.h"
#include "core/kernels/attention_plan.h"
#include "core/kernels/attention_tiled.h"
#include "core/kernels/attention_tiles.h"

namespace nxd::kernels {

void attention_forward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                       const HeadView& k, const HeadView& v, const HeadView& out,
                       float* statistics) {
  const AttentionPlan plan(dtype, shape);
  const PhaseScope phase(NXD_PHASE_ATTENTION, plan.operations(2));
  if (prefers_attention_tiles(dtype)) {
    attention_forward_tiled(plan, attention_tile_dtype(dtype), q, k, v, out, statistics);
  } else {
    attention_forward_blocks(plan, q, k, v, out, statistics);
  }
}

void attention_backward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                        const HeadView& k, const HeadView& v, const HeadView& out,
                        const float* statistics, const HeadView& dout, const HeadView& dq,
                        const HeadView& dk, const HeadView& dv) {
  const AttentionPlan plan(dtype, shape);
  const PhaseScope phase(NXD_PHASE_ATTENTION, plan.operations(4));
  if (prefers_attention_tiles(dtype)) {
    attention_backward_tiled(plan, attention_tile_dtype(dtype), q, k, v, out, statistics, dout, dq,
                             dk, dv);
  } else {
    attention_backward_blocks(plan, q, k, v, out, statistics, dout, dq, dk, dv);
  }
}

}  // namespace nxd::kernels
