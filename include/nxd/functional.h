/** @file
 * Region mappings and losses.
 *
 * Differentiable moves between what tensor-parallel ranks hold alike and what they hold in parts.
 * Each takes x and gives a new handle that the caller destroys; with one rank it is x itself. */
#ifndef NXD_FUNCTIONAL_H
#define NXD_FUNCTIONAL_H

#include "context.h"
#include "tensor.h"
#include "tensor_parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** [collective: tensor-parallel group, in backward] Identity; its backward sums the gradients of
 *  all ranks.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_copy_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                               nxd_tensor_t** out_y);

/** [collective: tensor-parallel group] Sum over ranks; its backward is the identity.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                   nxd_tensor_t** out_y);

/** [collective: tensor-parallel group, in backward] This rank's part of the last dimension; its
 *  backward gathers.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_scatter_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                  nxd_tensor_t** out_y);

/** [collective: tensor-parallel group] All ranks' parts side by side in the last dimension; its
 *  backward takes this rank's part.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_gather_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                   nxd_tensor_t** out_y);

/** [collective: tensor-parallel group, in backward] This rank's part of a dimension; its backward
 *  gathers.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                    int32_t dim, nxd_tensor_t** out_y);

/** [collective: tensor-parallel group] All ranks' parts along a dimension.
 *
 *  @param to_model_parallel  1: what follows is split over ranks, so the backward sums and scatters
 *                            the gradients; 0: what follows is replicated, so it takes this rank's
 *                            part.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_gather_from_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                     int32_t dim, int32_t to_model_parallel,
                                                     nxd_tensor_t** out_y);

/** [collective: tensor-parallel group] This rank's part, along a dimension, of the sum over ranks;
 *  its backward gathers.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                           int32_t dim, nxd_tensor_t** out_y);

/** Options of nxd_parallel_cross_entropy. */
typedef struct nxd_cross_entropy_options {
  size_t struct_size;
  double label_smoothing; /**< 0 to 1 */
  nxd_smoothing_t smoothing;
  nxd_reduction_t reduction;
  int32_t has_ignore_index; /**< 1: ignore_index counts; 0: -100 */
  int32_t reserved;
  int64_t ignore_index;
} nxd_cross_entropy_options_t;

#define NXD_CROSS_ENTROPY_OPTIONS_INIT \
  { sizeof(nxd_cross_entropy_options_t), 0.0, NXD_SMOOTHING_TORCH, NXD_REDUCTION_MEAN, 0, 0, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_cross_entropy_options_init(nxd_cross_entropy_options_t* options,
                                                    size_t size);

/** [collective: tensor-parallel group] Cross entropy on logits whose vocabulary is split over
 *  ranks. The logits are never gathered. Logits and labels stay as they are until the backward pass
 *  has read them: it is INVALID_STATE if one was written to.
 *
 *  @param logits    [..., vocabulary / tp], F32, F64 or BF16; left unchanged.
 *  @param labels    [...], I64, the same on all ranks, on the device of the logits; ignored where
 *                   equal to ignore_index.
 *  @param[out] out_loss  scalar, or [...] with REDUCTION_NONE; F32, or F64 for F64 logits. The
 *                        caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, devices, a label outside of the vocabulary);
 *          INVALID_STATE (no nxd_init_model_parallel); UNSUPPORTED (context- or expert-parallel
 *          ranks); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* logits,
                                                nxd_tensor_t* labels,
                                                const nxd_cross_entropy_options_t* options,
                                                nxd_tensor_t** out_loss);

/** [collective: tensor-parallel group] Cross entropy of the logits x weight^T, whose vocabulary is
 *  split over ranks, in blocks of tokens: the logits of one block exist at a time. Gradients of x
 *  and weight are formed with the loss, where autograd will ask for them, so that backward only
 *  scales them; it cannot be differentiated again. With REDUCTION_NONE, F64 or plain kernels all
 *  logits are made, as by nxd_parallel_cross_entropy.
 *
 *  @param x       [..., features], F32, F64 or BF16: the same on all ranks, or this rank's part
 *                 along sequence_dim. Its gradient is summed over ranks.
 *  @param weight  [vocabulary / tp, features], of the dtype of x: this rank's rows.
 *  @param labels  the whole x's shape without features, I64, the same on all ranks; ignored where
 *                 equal to ignore_index. x, weight and labels are on one device.
 *  @param sequence_dim  dimension of x of which ranks hold parts (sequence parallelism), not the
 *                       last; -1: none.
 *  @param[out] out_loss  as that of nxd_parallel_cross_entropy.
 *  @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, devices, a label outside of the vocabulary);
 *          INVALID_STATE (no nxd_init_model_parallel); UNSUPPORTED (context- or expert-parallel
 *          ranks); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* x,
                                              nxd_tensor_t* weight, nxd_tensor_t* labels,
                                              int32_t sequence_dim,
                                              const nxd_cross_entropy_options_t* options,
                                              nxd_tensor_t** out_loss);

#ifdef __cplusplus
}
#endif

#endif /* NXD_FUNCTIONAL_H */
