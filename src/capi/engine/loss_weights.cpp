// Section 15 of nxd.h: the weights of microbatches.
#include "engine/training/loss_weights.h"

#include "capi/engine/unwrap.h"

using namespace nxd;

nxd_status_t nxd_loss_weights(nxd_context_t* ctx, nxd_tensor_t* const* labels, size_t n,
                              int64_t ignore_index, int32_t shifted, double* out_weights) {
  return engine_guard([&] {
    clear_outputs(out_weights, n, "out_weights");
    const auto& context = unwrap(ctx, "ctx");
    const std::vector<double> weights =
        loss_weights(*context, unwrap_tensors(labels, n, "labels"), ignore_index, shifted != 0);
    for (size_t i = 0; i < n; ++i) out_weights[i] = weights[i];
  });
}
