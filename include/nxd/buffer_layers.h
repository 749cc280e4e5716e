/** @file
 * Layers over buffers that stand between and behind the linear ones: norms, dropout, and the head
 * of a language model with its loss.
 *
 * As those of tensor_parallel.h, which has the rules about arrays, outputs, workspaces and errors,
 * these functions keep nothing between calls, and the ranks of the tensor-parallel group compare
 * shapes, dtypes and options before any output is written. Weights and biases of norms are the same
 * on all ranks. */
#ifndef NXD_BUFFER_LAYERS_H
#define NXD_BUFFER_LAYERS_H

#include "dlpack.h"
#include "tensor_parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of the norms; the same on all ranks, but for the workspace. */
typedef struct nxd_normalization_options {
  size_t struct_size;
  double eps;                /**< added to the mean square; 0: 1e-5 */
  int32_t sequence_parallel; /**< 1: each rank has rows of its own, such as a part of the sequence,
                                  and the gradients of weight and bias are summed over ranks; 0: all
                                  ranks have the same rows */
  int32_t accumulate_grads;  /**< 1: grad_weight and grad_bias are added to what is there; 0: they
                                  are overwritten */
  void* workspace;           /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes;    /**< at least what the function's _get_workspace says */
} nxd_normalization_options_t;

#define NXD_NORMALIZATION_OPTIONS_INIT \
  { sizeof(nxd_normalization_options_t), 0.0, 0, 0, NULL, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_normalization_options_init(nxd_normalization_options_t* options,
                                                    size_t size);

/** [collective: tensor-parallel group] y = x / sqrt(mean(x^2) + eps) weight over the last dimension
 *  (Zhang and Sennrich 2019). 16-bit floats are computed in F32 and rounded once. Ranks exchange
 *  no more than the agreement.
 *
 *  @param x           [..., features], with at least one feature.
 *  @param weight      [features], of the dtype of x. NULL: ones.
 *  @param y           of the shape and dtype of x.
 *  @param statistics  [...], F32, or F64 for F64 x: 1 / sqrt(mean(x^2) + eps) of each row, which
 *                     the backward pass needs. NULL: not wanted.
 *  @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for an eps that is
 *          negative or not finite.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rms_norm_forward(nxd_context_t* ctx, const DLTensor* x,
                                          const DLTensor* weight,
                                          const nxd_normalization_options_t* options, DLTensor* y,
                                          DLTensor* statistics);

/** [local] Bytes of workspace of nxd_rms_norm_forward, as nxd_column_linear_forward_get_workspace
 *  gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rms_norm_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                        const DLTensor* weight,
                                                        const nxd_normalization_options_t* options,
                                                        const DLTensor* y,
                                                        const DLTensor* statistics,
                                                        size_t* out_bytes);

/** [collective: tensor-parallel group] Gradients of nxd_rms_norm_forward.
 *
 *  @param x            as given to the forward.
 *  @param weight       as given to the forward.
 *  @param statistics   as the forward gave them.
 *  @param grad_y       of the shape and dtype of x.
 *  @param grad_x       of the shape and dtype of x. NULL: not wanted.
 *  @param grad_weight  [features], of the dtype of x, or F32 for 16-bit floats; complete, and the
 *                      same on all ranks. NULL: not wanted.
 *  @return as nxd_rms_norm_forward. Ranks must want the same gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rms_norm_backward(nxd_context_t* ctx, const DLTensor* x,
                                           const DLTensor* weight, const DLTensor* statistics,
                                           const DLTensor* grad_y,
                                           const nxd_normalization_options_t* options,
                                           DLTensor* grad_x, DLTensor* grad_weight);

/** [local] Bytes of workspace of nxd_rms_norm_backward, as nxd_column_linear_forward_get_workspace
 *  gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rms_norm_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics,
    const DLTensor* grad_y, const nxd_normalization_options_t* options, const DLTensor* grad_x,
    const DLTensor* grad_weight, size_t* out_bytes);

/** [collective: tensor-parallel group] y = (x - mean) / sqrt(variance + eps) weight + bias over the
 *  last dimension, with the biased variance (Ba et al. 2016). 16-bit floats are computed in F32
 *  and rounded once. Ranks exchange no more than the agreement.
 *
 *  @param x           [..., features], with at least one feature.
 *  @param weight      [features], of the dtype of x. NULL: ones.
 *  @param bias        [features], of the dtype of x. NULL: none.
 *  @param y           of the shape and dtype of x.
 *  @param statistics  [2, ...], F32, or F64 for F64 x: of each row the mean, and 1 / sqrt(variance
 *                     + eps), which the backward pass needs. NULL: not wanted.
 *  @return as nxd_rms_norm_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_norm_forward(nxd_context_t* ctx, const DLTensor* x,
                                            const DLTensor* weight, const DLTensor* bias,
                                            const nxd_normalization_options_t* options, DLTensor* y,
                                            DLTensor* statistics);

/** [local] Bytes of workspace of nxd_layer_norm_forward, as nxd_column_linear_forward_get_workspace
 *  gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_norm_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const nxd_normalization_options_t* options, const DLTensor* y, const DLTensor* statistics,
    size_t* out_bytes);

/** [collective: tensor-parallel group] Gradients of nxd_layer_norm_forward.
 *
 *  @param x            as given to the forward.
 *  @param weight       as given to the forward.
 *  @param statistics   as the forward gave them.
 *  @param grad_y       of the shape and dtype of x.
 *  @param grad_x       of the shape and dtype of x. NULL: not wanted.
 *  @param grad_weight  [features], of the dtype of x, or F32 for 16-bit floats; complete, and the
 *                      same on all ranks. NULL: not wanted.
 *  @param grad_bias    as grad_weight.
 *  @return as nxd_rms_norm_forward. Ranks must want the same gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_norm_backward(nxd_context_t* ctx, const DLTensor* x,
                                             const DLTensor* weight, const DLTensor* statistics,
                                             const DLTensor* grad_y,
                                             const nxd_normalization_options_t* options,
                                             DLTensor* grad_x, DLTensor* grad_weight,
                                             DLTensor* grad_bias);

/** [local] Bytes of workspace of nxd_layer_norm_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_norm_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics,
    const DLTensor* grad_y, const nxd_normalization_options_t* options, const DLTensor* grad_x,
    const DLTensor* grad_weight, const DLTensor* grad_bias, size_t* out_bytes);

/** Options of nxd_dropout_forward and _backward; the same on all ranks, but for the workspace. */
typedef struct nxd_dropout_options {
  size_t struct_size;
  double p;               /**< the probability of an element to be dropped, from 0 to below 1 */
  int64_t step;           /**< see has_position */
  int64_t microbatch;     /**< see has_position */
  int32_t has_position;   /**< 1: bits are those of step and microbatch; 0: those of the context's
                               (nxd_context_set_step) */
  int32_t has_shard_dim;  /**< 1: each rank has a part of x along shard_dim; 0: all ranks have x */
  int32_t shard_dim;      /**< of x; from the end when negative */
  int32_t transposed;     /**< 1: elements are numbered with the first two dimensions the other way
                               round, as the models of libnxd do for [sequence, batch, features] */
  void* workspace;        /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes; /**< at least what the function's _get_workspace says */
} nxd_dropout_options_t;

#define NXD_DROPOUT_OPTIONS_INIT \
  { sizeof(nxd_dropout_options_t), 0.0, 0, 0, 0, 0, 0, 0, NULL, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_dropout_options_init(nxd_dropout_options_t* options, size_t size);

/** [collective: tensor-parallel group] y = x / (1 - p) for elements that are kept, else x 0.
 *  The context's seed, the name, the step, the microbatch and the element's index in the undivided
 *  array decide whether it is kept (Philox4x32-10, Salmon et al. 2011): no number of ranks changes
 *  it, and nothing is kept for the backward pass. Ranks exchange no more than the
 *  agreement.
 *
 *  @param name  of the layer, the same on all ranks; each layer needs one of its own.
 *  @param x     F32, F64, BF16 or F16, of equal sizes on all ranks.
 *  @param y     of the shape and dtype of x. It may be the very array of x.
 *  @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for a p out of range.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_dropout_forward(nxd_context_t* ctx, const char* name, const DLTensor* x,
                                         const nxd_dropout_options_t* options, DLTensor* y);

/** [local] Bytes of workspace of nxd_dropout_forward, as nxd_column_linear_forward_get_workspace
 *  gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_dropout_forward_get_workspace(nxd_context_t* ctx, const char* name,
                                                       const DLTensor* x,
                                                       const nxd_dropout_options_t* options,
                                                       const DLTensor* y, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradient of nxd_dropout_forward, by the same bits: name and
 *  options, step and microbatch are those of the forward.
 *
 *  @param grad_y  of the shape and dtype of y.
 *  @param grad_x  of the shape and dtype of x. It may be the very array of grad_y.
 *  @return as nxd_dropout_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_dropout_backward(nxd_context_t* ctx, const char* name,
                                          const DLTensor* grad_y,
                                          const nxd_dropout_options_t* options, DLTensor* grad_x);

/** [local] Bytes of workspace of nxd_dropout_backward, as nxd_column_linear_forward_get_workspace
 *  gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_dropout_backward_get_workspace(nxd_context_t* ctx, const char* name,
                                                        const DLTensor* grad_y,
                                                        const nxd_dropout_options_t* options,
                                                        const DLTensor* grad_x, size_t* out_bytes);

/** Options of nxd_linear_cross_entropy_forward and _backward; the same on all ranks, but for the
 *  workspace. */
typedef struct nxd_linear_cross_entropy_options {
  size_t struct_size;
  double label_smoothing; /**< 0 to 1 */
  nxd_smoothing_t smoothing;
  nxd_reduction_t reduction;
  int64_t vocab_size;       /**< classes that there are; 0: the rows of all ranks' weights, of which
                                 the last ones may pad a vocabulary that does not divide */
  int64_t ignore_index;     /**< see has_ignore_index */
  int32_t has_ignore_index; /**< 1: ignore_index counts; 0: -100 */
  int32_t sequence_parallel; /**< 1: x is this rank's part along sequence_dim */
  int32_t sequence_dim;      /**< of x, not the last; from the end when negative */
  int32_t transposed_weight; /**< 1: the weight is [features, n] */
  int32_t accumulate_grads;  /**< 1: grad_weight and grad_bias are added to what is there; 0: they
                                  are overwritten */
  int32_t block_tokens;      /**< whose logits exist at a time; 0: by the library's choice */
  void* workspace;           /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes;    /**< at least what the function's _get_workspace says */
} nxd_linear_cross_entropy_options_t;

#define NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT                                                    \
  {                                                                                              \
    sizeof(nxd_linear_cross_entropy_options_t), 0.0, NXD_SMOOTHING_TORCH, NXD_REDUCTION_MEAN, 0, \
        0, 0, 0, 0, 0, 0, 0, NULL, 0                                                             \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t
nxd_linear_cross_entropy_options_init(nxd_linear_cross_entropy_options_t* options, size_t size);

/** [collective: tensor-parallel group] nxd_parallel_cross_entropy_forward of the logits
 *  x weight^T + bias, in blocks of tokens: the logits of one block exist at a time. They are F32,
 *  or F64 for F64 x.
 *
 *  @param x           [..., features], the same on all ranks; with sequence_parallel this rank's
 *                     part, and the loss is that of all ranks' parts.
 *  @param weight      [n, features], of the dtype of x: rank r of the group has the classes r n to
 *                     (r + 1) n - 1, with the same n on all ranks.
 *  @param bias        [n], of the dtype of x. NULL: none.
 *  @param labels      the whole x's shape without the features, I32 or I64, the same on all ranks;
 *                     ignored where equal to ignore_index.
 *  @param statistics  [2, ...] with the shape of labels, F32, or F64 for F64 x, as those of
 *                     nxd_parallel_cross_entropy_forward. NULL: not wanted.
 *  @param loss        as that of nxd_parallel_cross_entropy_forward.
 *  @return as nxd_parallel_cross_entropy_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_cross_entropy_forward(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const DLTensor* labels, const nxd_linear_cross_entropy_options_t* options, DLTensor* statistics,
    DLTensor* loss);

/** [local] Bytes of workspace of nxd_linear_cross_entropy_forward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_cross_entropy_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const DLTensor* labels, const nxd_linear_cross_entropy_options_t* options,
    const DLTensor* statistics, const DLTensor* loss, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradients of nxd_linear_cross_entropy_forward. The logits of
 *  each block are computed again. The gradient of x is summed over ranks.
 *
 *  @param x            as given to the forward.
 *  @param weight       as given to the forward.
 *  @param bias         as given to the forward.
 *  @param labels       as given to the forward.
 *  @param statistics   as the forward gave them.
 *  @param grad_loss    of the shape and dtype of loss; NULL: 1.
 *  @param grad_x       of the shape and dtype of x, complete. NULL: not wanted.
 *  @param grad_weight  of the shape of weight, of its dtype, or F32 for 16-bit floats; complete.
 *                      NULL: not wanted.
 *  @param grad_bias    [n], of a dtype as grad_weight's; complete. NULL: not wanted.
 *  @return as nxd_linear_cross_entropy_forward. Ranks must want the same gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_cross_entropy_backward(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const DLTensor* labels, const DLTensor* statistics, const DLTensor* grad_loss,
    const nxd_linear_cross_entropy_options_t* options, DLTensor* grad_x, DLTensor* grad_weight,
    DLTensor* grad_bias);

/** [local] Bytes of workspace of nxd_linear_cross_entropy_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_cross_entropy_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const DLTensor* labels, const DLTensor* statistics, const DLTensor* grad_loss,
    const nxd_linear_cross_entropy_options_t* options, const DLTensor* grad_x,
    const DLTensor* grad_weight, const DLTensor* grad_bias, size_t* out_bytes);

#ifdef __cplusplus
}
#endif

#endif /* NXD_BUFFER_LAYERS_H */
