/** @file
 * Tensor-parallel layers over buffers.
 *
 * Tensor-parallel ranks share the work of each layer. These functions compute the forward and the
 * backward pass of a layer on arrays that the caller owns, such as another framework's, over the
 * tensor-parallel group of the context, which must be initialised. They keep nothing between calls.
 *
 * An array is a DLTensor in memory of the CPU: F32, F64, BF16 or F16, of any sizes, with any
 * strides; that of an output may not give two elements one place. Structs and arrays are borrowed
 * for the call. An output is memory of the caller's that the call fills; it may not overlap another
 * array of the call.
 *
 * Before any output is written, the ranks of the group compare shapes, dtypes and options. Where
 * they differ, or where one rank's arguments are bad, every rank gets an error that names the rank
 * and its reason, no output is changed, and the group stays usable. After TIMEOUT or PEER_LOST the
 * outputs of that call are undefined.
 *
 * A weight is stored [out_features, in_features], or the other way round with transposed_weight.
 * Sums over ranks of 16-bit floats are formed in F32 and rounded once; where the layout's
 * reduce_dtype is BF16, each rank's part of a BF16 linear layer's sum is rounded before. With one
 * rank in the group no function communicates. */
#ifndef NXD_TENSOR_PARALLEL_H
#define NXD_TENSOR_PARALLEL_H

#include "dlpack.h"
#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of nxd_column_linear_forward, nxd_column_linears_forward and their _backward; the same
 *  on all ranks, but for the workspace. */
typedef struct nxd_column_linear_options {
  size_t struct_size;
  int32_t gather_output;     /**< 1: y has the features of all ranks, else this rank's */
  int32_t sequence_parallel; /**< 1: x is this rank's part along sequence_dim; not together with
                                  gather_output */
  int32_t sequence_dim;      /**< of x and y, not the last; from the end when negative */
  int32_t transposed_weight; /**< 1: the weight is [in_features, out_features / tp] */
  int32_t accumulate_grads;  /**< 1: grad_weight and grad_bias are added to what is there; 0: they
                                  are overwritten */
  int32_t reserved;          /**< 0 */
  void* workspace;           /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes;    /**< at least what the function's _get_workspace says */
} nxd_column_linear_options_t;

#define NXD_COLUMN_LINEAR_OPTIONS_INIT \
  { sizeof(nxd_column_linear_options_t), 0, 0, 0, 0, 0, 0, NULL, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linear_options_init(nxd_column_linear_options_t* options,
                                                    size_t size);

/** [collective: tensor-parallel group] y = x weight^T + bias, where each rank holds the weight's
 *  rows of its own output features.
 *
 *  @param x       [..., in_features], the same on all ranks; with sequence_parallel this rank's
 *                 part, and the product is of all ranks' parts.
 *  @param weight  [out_features / tp, in_features], of the dtype of x.
 *  @param bias    [the features of y], of the dtype of x; with gather_output the same on all ranks.
 *                 NULL: none.
 *  @param y       [..., out_features / tp], or [..., out_features] with gather_output; of the dtype
 *                 of x. With sequence_parallel its sequence_dim is tp times that of x.
 *  @return NXD_OK; INVALID_ARGUMENT, on all ranks (shapes, dtypes, memory that overlaps, a
 *          workspace that is too small, ranks that disagree); INVALID_STATE (no
 *          nxd_init_model_parallel); UNSUPPORTED (context- or expert-parallel ranks);
 *          OUT_OF_MEMORY; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linear_forward(nxd_context_t* ctx, const DLTensor* x,
                                               const DLTensor* weight, const DLTensor* bias,
                                               const nxd_column_linear_options_t* options,
                                               DLTensor* y);

/** [local] Bytes of workspace that nxd_column_linear_forward needs for arrays of these shapes,
 *  strides and dtypes; their data are not looked at. Threads keep some scratch memory of their own
 *  beside it.
 *  @param[out] out_bytes  the workspace may lie at any address.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE; UNSUPPORTED.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linear_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const nxd_column_linear_options_t* options, const DLTensor* y, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradients of nxd_column_linear_forward. The gradient of x is
 *  summed over ranks while that of the weight is computed.
 *
 *  @param x            as given to the forward.
 *  @param weight       as given to the forward.
 *  @param grad_y       of the shape and dtype of y; with gather_output the same on all ranks.
 *  @param grad_x       of the shape and dtype of x, complete; NULL: not wanted.
 *  @param grad_weight  of the shape of weight, of its dtype, or F32 for 16-bit floats; complete.
 *                      NULL: not wanted.
 *  @param grad_bias    [the features of y], of a dtype as grad_weight's; complete. NULL: not
 *                      wanted.
 *  @return as nxd_column_linear_forward. Ranks must want the same gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linear_backward(nxd_context_t* ctx, const DLTensor* x,
                                                const DLTensor* weight, const DLTensor* grad_y,
                                                const nxd_column_linear_options_t* options,
                                                DLTensor* grad_x, DLTensor* grad_weight,
                                                DLTensor* grad_bias);

/** [local] Bytes of workspace of nxd_column_linear_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linear_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* grad_y,
    const nxd_column_linear_options_t* options, const DLTensor* grad_x, const DLTensor* grad_weight,
    const DLTensor* grad_bias, size_t* out_bytes);

/** [collective: tensor-parallel group] nxd_column_linear_forward of one x by several weights, such
 *  as those of query, key and value: under sequence_parallel x is gathered once.
 *
 *  @param weights      num_weights arrays, as weight there; all of them read the same features.
 *  @param biases       one per weight, NULL where it has none; NULL: none at all.
 *  @param num_weights  at least 1.
 *  @param ys           one per weight, as y there.
 *  @return as nxd_column_linear_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linears_forward(nxd_context_t* ctx, const DLTensor* x,
                                                const DLTensor* const* weights,
                                                const DLTensor* const* biases, size_t num_weights,
                                                const nxd_column_linear_options_t* options,
                                                DLTensor* const* ys);

/** [local] Bytes of workspace of nxd_column_linears_forward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linears_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* const* weights,
    const DLTensor* const* biases, size_t num_weights, const nxd_column_linear_options_t* options,
    const DLTensor* const* ys, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradients of nxd_column_linears_forward. That of x is one
 *  sum over weights and ranks.
 *
 *  @param x             as given to the forward.
 *  @param weights       as given to the forward.
 *  @param grad_ys       one per weight, as grad_y of nxd_column_linear_backward.
 *  @param grad_x        as there; NULL: not wanted.
 *  @param grad_weights  one per weight, as grad_weight there, NULL where it is not wanted; NULL:
 *                       none is.
 *  @param grad_biases   the same, as grad_bias there.
 *  @return as nxd_column_linear_backward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linears_backward(nxd_context_t* ctx, const DLTensor* x,
                                                 const DLTensor* const* weights,
                                                 const DLTensor* const* grad_ys, size_t num_weights,
                                                 const nxd_column_linear_options_t* options,
                                                 DLTensor* grad_x, DLTensor* const* grad_weights,
                                                 DLTensor* const* grad_biases);

/** [local] Bytes of workspace of nxd_column_linears_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_linears_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* const* weights,
    const DLTensor* const* grad_ys, size_t num_weights, const nxd_column_linear_options_t* options,
    const DLTensor* grad_x, const DLTensor* const* grad_weights, const DLTensor* const* grad_biases,
    size_t* out_bytes);

/** Options of nxd_row_linear_forward and _backward; the same on all ranks, but for the
 *  workspace. */
typedef struct nxd_row_linear_options {
  size_t struct_size;
  nxd_toggle_t input_is_parallel; /**< default on: x has this rank's features; off: those of all
                                       ranks, of which this rank takes its own */
  int32_t sequence_parallel;      /**< 1: y is this rank's part of the sum along sequence_dim; needs
                                       input_is_parallel */
  int32_t sequence_dim;           /**< of x and y, not the last; from the end when negative */
  int32_t transposed_weight;      /**< 1: the weight is [in_features / tp, out_features] */
  int32_t accumulate_grads; /**< 1: grad_weight and grad_bias are added to what is there; 0: they
                                 are overwritten */
  int32_t reserved;         /**< 0 */
  void* workspace;          /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes;   /**< at least what the function's _get_workspace says */
} nxd_row_linear_options_t;

#define NXD_ROW_LINEAR_OPTIONS_INIT \
  { sizeof(nxd_row_linear_options_t), 0, 0, 0, 0, 0, 0, NULL, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_row_linear_options_init(nxd_row_linear_options_t* options, size_t size);

/** [collective: tensor-parallel group] y = x weight^T + bias, summed over ranks, where each rank
 *  holds the weight's columns of its own input features. The bias is added once, to the sum.
 *
 *  @param x       [..., in_features / tp]; without input_is_parallel [..., in_features], the same
 *                 on all ranks.
 *  @param weight  [out_features, in_features / tp], of the dtype of x.
 *  @param bias    [out_features], of the dtype of x, the same on all ranks. NULL: none.
 *  @param y       [..., out_features], of the dtype of x. With sequence_parallel the sequence_dim
 *                 of x is tp times its own.
 *  @return as nxd_column_linear_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_row_linear_forward(nxd_context_t* ctx, const DLTensor* x,
                                            const DLTensor* weight, const DLTensor* bias,
                                            const nxd_row_linear_options_t* options, DLTensor* y);

/** [local] Bytes of workspace of nxd_row_linear_forward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_row_linear_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                          const DLTensor* weight,
                                                          const DLTensor* bias,
                                                          const nxd_row_linear_options_t* options,
                                                          const DLTensor* y, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradients of nxd_row_linear_forward.
 *
 *  @param x            as given to the forward.
 *  @param weight       as given to the forward.
 *  @param grad_y       of the shape and dtype of y; without sequence_parallel the same on all
 *                      ranks.
 *  @param grad_x       of the shape and dtype of x, complete; NULL: not wanted.
 *  @param grad_weight  of the shape of weight, of its dtype, or F32 for 16-bit floats; complete.
 *                      NULL: not wanted.
 *  @param grad_bias    [out_features], of a dtype as grad_weight's; complete, and the same on all
 *                      ranks. NULL: not wanted.
 *  @return as nxd_column_linear_forward. Ranks must want the same gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_row_linear_backward(nxd_context_t* ctx, const DLTensor* x,
                                             const DLTensor* weight, const DLTensor* grad_y,
                                             const nxd_row_linear_options_t* options,
                                             DLTensor* grad_x, DLTensor* grad_weight,
                                             DLTensor* grad_bias);

/** [local] Bytes of workspace of nxd_row_linear_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_row_linear_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* grad_y,
    const nxd_row_linear_options_t* options, const DLTensor* grad_x, const DLTensor* grad_weight,
    const DLTensor* grad_bias, size_t* out_bytes);

/** Options of nxd_vocab_parallel_embedding_forward and _backward; the same on all ranks, but for
 *  the workspace. */
typedef struct nxd_vocab_parallel_embedding_options {
  size_t struct_size;
  int64_t num_embeddings;    /**< ids that there are; 0: the rows of all ranks, of which the last
                                  ones may pad a vocabulary that does not divide */
  int64_t padding_idx;       /**< see has_padding_idx */
  int32_t has_padding_idx;   /**< 1: the row of padding_idx gets no gradient */
  int32_t sequence_parallel; /**< 1: y is this rank's part along sequence_dim */
  int32_t sequence_dim;      /**< of y, not the last; from the end when negative */
  int32_t accumulate_grads;  /**< 1: grad_weight is added to what is there; 0: it is overwritten */
  void* workspace;           /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes;    /**< at least what the function's _get_workspace says */
} nxd_vocab_parallel_embedding_options_t;

#define NXD_VOCAB_PARALLEL_EMBEDDING_OPTIONS_INIT \
  { sizeof(nxd_vocab_parallel_embedding_options_t), 0, 0, 0, 0, 0, 0, NULL, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_vocab_parallel_embedding_options_init(
    nxd_vocab_parallel_embedding_options_t* options, size_t size);

/** [collective: tensor-parallel group] Rows of an embedding by their ids, where rank r of the group
 *  has the rows r n to (r + 1) n - 1 of a table, as in Megatron-LM and NxD Core.
 *
 *  @param ids     [...], I32 or I64, from 0 to num_embeddings - 1; the same on all ranks.
 *  @param weight  [n, hidden], with the same n on all ranks. Rows beyond num_embeddings are never
 *                 read.
 *  @param y       [..., hidden], of the dtype of weight. With sequence_parallel its sequence_dim is
 *                 a tp-th of that of ids.
 *  @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for an id outside of
 *          the table.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_vocab_parallel_embedding_forward(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* weight,
    const nxd_vocab_parallel_embedding_options_t* options, DLTensor* y);

/** [local] Bytes of workspace of nxd_vocab_parallel_embedding_forward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_vocab_parallel_embedding_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* weight,
    const nxd_vocab_parallel_embedding_options_t* options, const DLTensor* y, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradient of nxd_vocab_parallel_embedding_forward. Rows are
 *  summed in the order of the ids, those of 16-bit floats in F32.
 *
 *  @param ids          as given to the forward.
 *  @param grad_y       of the shape and dtype of y; without sequence_parallel the same on all
 *                      ranks.
 *  @param grad_weight  [n, hidden], of the dtype of grad_y, or F32 for 16-bit floats; complete.
 *  @return as nxd_vocab_parallel_embedding_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_vocab_parallel_embedding_backward(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* grad_y,
    const nxd_vocab_parallel_embedding_options_t* options, DLTensor* grad_weight);

/** [local] Bytes of workspace of nxd_vocab_parallel_embedding_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_vocab_parallel_embedding_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* grad_y,
    const nxd_vocab_parallel_embedding_options_t* options, const DLTensor* grad_weight,
    size_t* out_bytes);

/** Result of a loss. */
typedef int32_t nxd_reduction_t;
enum {
  NXD_REDUCTION_INVALID = -1,
  NXD_REDUCTION_MEAN = 0, /**< over valid tokens; 0 when there is none */
  NXD_REDUCTION_SUM = 1,
  NXD_REDUCTION_NONE = 2 /**< one value per token */
};

/** Formula of label smoothing. */
typedef int32_t nxd_smoothing_t;
enum {
  NXD_SMOOTHING_INVALID = -1,
  NXD_SMOOTHING_TORCH = 0,   /**< (1 - s) nll + s mean of -log p, as torch's cross_entropy */
  NXD_SMOOTHING_MEGATRON = 1 /**< the same with s V / (V - 1), over the whole vocabulary V */
};

/** Options of nxd_parallel_cross_entropy_forward and _backward; the same on all ranks, but for the
 *  workspace. */
typedef struct nxd_parallel_cross_entropy_options {
  size_t struct_size;
  double label_smoothing; /**< 0 to 1 */
  nxd_smoothing_t smoothing;
  nxd_reduction_t reduction;
  int64_t vocab_size;       /**< classes that there are; 0: the columns of all ranks, of which the
                                 last ones may pad a vocabulary that does not divide */
  int64_t ignore_index;     /**< see has_ignore_index */
  int32_t has_ignore_index; /**< 1: ignore_index counts; 0: -100 */
  int32_t reserved;         /**< 0 */
  void* workspace;          /**< memory for the call; NULL: the library's own */
  size_t workspace_bytes;   /**< at least what the function's _get_workspace says */
} nxd_parallel_cross_entropy_options_t;

#define NXD_PARALLEL_CROSS_ENTROPY_OPTIONS_INIT                                                    \
  {                                                                                                \
    sizeof(nxd_parallel_cross_entropy_options_t), 0.0, NXD_SMOOTHING_TORCH, NXD_REDUCTION_MEAN, 0, \
        0, 0, 0, NULL, 0                                                                           \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t
nxd_parallel_cross_entropy_options_init(nxd_parallel_cross_entropy_options_t* options, size_t size);

/** [collective: tensor-parallel group] Cross entropy of logits of which rank r of the group has the
 *  columns r n to (r + 1) n - 1. The logits are never gathered. With z for the logits of a token
 *  and s for the smoothing, its loss is log sum exp z - (1 - s) z[label] - s mean z, which is
 *  torch's; NXD_SMOOTHING_MEGATRON takes s V / (V - 1) for s.
 *
 *  @param logits      [..., n], with the same n on all ranks; columns beyond vocab_size are not
 *                     read.
 *  @param labels      [...], I32 or I64, the same on all ranks; ignored where equal to
 *                     ignore_index.
 *  @param statistics  [2, ...], F32, or F64 for F64 logits, the same on all ranks: for each token
 *                     the largest logit m, and log sum exp(z - m), which the backward pass needs.
 *                     NULL: not wanted.
 *  @param loss        the same on all ranks, of the dtype of statistics: [...] with
 *                     REDUCTION_NONE, 0 for ignored tokens; else without dimensions.
 *  @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for a label outside
 *          of the vocabulary.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_cross_entropy_forward(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels,
    const nxd_parallel_cross_entropy_options_t* options, DLTensor* statistics, DLTensor* loss);

/** [local] Bytes of workspace of nxd_parallel_cross_entropy_forward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_cross_entropy_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels,
    const nxd_parallel_cross_entropy_options_t* options, const DLTensor* statistics,
    const DLTensor* loss, size_t* out_bytes);

/** [collective: tensor-parallel group] Gradient of nxd_parallel_cross_entropy_forward. Ranks
 *  exchange no more than the agreement.
 *
 *  @param logits       as given to the forward.
 *  @param labels       as given to the forward.
 *  @param statistics   as the forward gave them.
 *  @param grad_loss    of the shape and dtype of loss; NULL: 1.
 *  @param grad_logits  of the shape and dtype of logits, 0 for ignored tokens and for columns
 *                      beyond vocab_size. It may be the very array of the logits.
 *  @return as nxd_parallel_cross_entropy_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_cross_entropy_backward(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels, const DLTensor* statistics,
    const DLTensor* grad_loss, const nxd_parallel_cross_entropy_options_t* options,
    DLTensor* grad_logits);

/** [local] Bytes of workspace of nxd_parallel_cross_entropy_backward, as
 *  nxd_column_linear_forward_get_workspace gives them.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_cross_entropy_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels, const DLTensor* statistics,
    const DLTensor* grad_loss, const nxd_parallel_cross_entropy_options_t* options,
    const DLTensor* grad_logits, size_t* out_bytes);

/** Moves between what the ranks of the group hold alike and what they hold in parts, as in
 *  Megatron-LM. The features of a tensor-parallel region are parts along the last dimension (dim
 *  -1), a sequence is one along another. */
typedef int32_t nxd_region_mapping_t;
enum {
  NXD_REGION_MAPPING_INVALID = -1,
  NXD_REGION_MAPPING_COPY_TO = 0,           /**< identity; backward: sum over ranks */
  NXD_REGION_MAPPING_REDUCE_FROM = 1,       /**< sum over ranks; backward: identity */
  NXD_REGION_MAPPING_SCATTER_TO = 2,        /**< this rank's part; backward: all parts */
  NXD_REGION_MAPPING_GATHER_FROM = 3,       /**< all parts; backward: this rank's part */
  NXD_REGION_MAPPING_GATHER_FOR_SHARDS = 4, /**< all parts, for a layer that is split over ranks;
                                               backward: this rank's part of the sum */
  NXD_REGION_MAPPING_REDUCE_SCATTER_TO = 5  /**< this rank's part of the sum; backward: all parts */
};

/** [collective: tensor-parallel group] Moves x into or out of a region.
 *
 *  @param dim  of which ranks have parts, from the end when negative; of no concern to COPY_TO and
 *              REDUCE_FROM.
 *  @param x    any shape. F32, F64, BF16 or F16 where it is summed, else any dtype.
 *  @param y    of the dtype and shape of x, but for the size of dim: tp times that of x, a tp-th of
 *              it, or the same, by the mapping.
 *  @return as nxd_column_linear_forward; INVALID_ARGUMENT also for a size that does not divide.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_region_mapping_forward(nxd_context_t* ctx, nxd_region_mapping_t mapping,
                                                int32_t dim, const DLTensor* x, DLTensor* y);

/** [collective: tensor-parallel group] Gradient of nxd_region_mapping_forward.
 *
 *  @param grad_y  of the shape of y.
 *  @param grad_x  of the shape of x, and of the dtype of grad_y.
 *  @return as nxd_region_mapping_forward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_region_mapping_backward(nxd_context_t* ctx, nxd_region_mapping_t mapping,
                                                 int32_t dim, const DLTensor* grad_y,
                                                 DLTensor* grad_x);

#ifdef __cplusplus
}
#endif

#endif /* NXD_TENSOR_PARALLEL_H */
