/** @file
 * Parallel state: which ranks share tensors, stages and data. */
#ifndef NXD_PARALLEL_H
#define NXD_PARALLEL_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Axes of the rank layout. */
typedef int32_t nxd_axis_t;
enum {
  NXD_AXIS_INVALID = -1,
  NXD_AXIS_WORLD = 0,
  NXD_AXIS_TENSOR = 1,
  NXD_AXIS_PIPELINE = 2,
  NXD_AXIS_DATA = 3,
  NXD_AXIS_CONTEXT = 4,
  NXD_AXIS_EXPERT_MODEL = 5,
  NXD_AXIS_EXPERT_DATA = 6
};

/** Hardware that decides the order of ranks. */
typedef int32_t nxd_platform_t;
enum {
  NXD_PLATFORM_INVALID = -1,
  NXD_PLATFORM_NEUTRAL = 0, /**< tensor-parallel ranks adjacent, then context, data, pipeline */
  NXD_PLATFORM_TRN1 = 1,    /**< as neutral, but tensor groups of 4 are strided within a host */
  NXD_PLATFORM_TRN2 = 2 /**< as neutral, but tensor groups of 64 are rings; with lnc_size 2 those
                             of 32 instead, in worlds of 64 ranks or more */
};

/** A layout of ranks. Sizes are rejected, never clamped: tensor x pipeline x context, and tensor x
 *  pipeline x expert, must divide the world. Context- and expert-parallel groups are for a caller's
 *  own use: nothing is reduced over them, so with a size above 1 layers, models, their training,
 *  pipelines, and ddps over buffers without a group of their own are UNSUPPORTED.
 *
 *  reduce_dtype is no part of a layout: tensor-parallel ranks exchange the partial sums of linear
 *  layers in it, where these are BF16. BF16 halves the bytes; each rank's part is then rounded
 *  before the parts are added. */
typedef struct nxd_parallel_options {
  size_t struct_size;
  int32_t tensor_parallel_size;   /**< 0: 1 */
  int32_t pipeline_parallel_size; /**< 0: 1 */
  int32_t context_parallel_size;  /**< 0: 1 */
  int32_t expert_parallel_size;   /**< 0: 1 */
  nxd_platform_t platform;
  int32_t lnc_size;         /**< logical core configuration, 1 or 2; 0: 1 */
  int32_t local_world_size; /**< ranks per host, for TRN1 and TRN2; 0: the whole world */
  nxd_dtype_t reduce_dtype; /**< F32, or BF16: of the partial sums of BF16 linear layers */
} nxd_parallel_options_t;

#define NXD_PARALLEL_OPTIONS_INIT \
  { sizeof(nxd_parallel_options_t), 1, 1, 1, 1, NXD_PLATFORM_NEUTRAL, 1, 0, NXD_DTYPE_F32 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_options_init(nxd_parallel_options_t* options, size_t size);

/** [local] Number of groups along an axis of a layout; no context needed.
 *  @return NXD_OK; INVALID_ARGUMENT (sizes that do not divide); UNSUPPORTED (platform and layout).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layout_get_group_count(const nxd_parallel_options_t* options,
                                                int32_t world_size, nxd_axis_t axis,
                                                int32_t* out_count);

/** [local] Ranks of one group of a layout, in group order; no context needed.
 *
 *  @param index   0..count-1, in the order of the lists NxD Core prints.
 *  @param ranks   room for cap ranks; may be NULL when cap is 0.
 *  @param[out] out_size  ranks in the group, also when they exceed cap: then nothing is copied, and
 *                        a cap other than 0 is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layout_get_group(const nxd_parallel_options_t* options, int32_t world_size,
                                          nxd_axis_t axis, int32_t index, int32_t* ranks,
                                          size_t cap, size_t* out_size);

/** [local] Group that a rank belongs to, and its place in it; no context needed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layout_find_rank(const nxd_parallel_options_t* options, int32_t world_size,
                                          nxd_axis_t axis, int32_t rank, int32_t* out_group_index,
                                          int32_t* out_rank_in_group);

/** [collective: world] Lays out the context's world and makes its groups.
 *
 *  @param options  NULL: one tensor- and pipeline-parallel rank, all others data parallel.
 *  @return NXD_OK; INVALID_ARGUMENT (sizes, ranks that disagree about them, or tensor-parallel
 *          ranks with different seeds); INVALID_STATE (initialised already, finalized, forked);
 *          UNSUPPORTED (platform and layout); TIMEOUT; PEER_LOST; ABORTED.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_init_model_parallel(nxd_context_t* ctx,
                                             const nxd_parallel_options_t* options);

/** [local] Forgets the layout, so that nxd_init_model_parallel may be called again.
 *
 *  Modules made under the old layout keep their groups. Works still pending on groups that nothing
 *  keeps end with ABORTED first, as with nxd_group_destroy.
 *  @return NXD_OK; INVALID_STATE (not initialised; in an interrupt callback).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_destroy_model_parallel(nxd_context_t* ctx);

/** [local] 1 between nxd_init_model_parallel and nxd_destroy_model_parallel; 0 for NULL, and in a
 *  fork of the context's process.
 *  @since 0.1 */
NXD_API int32_t nxd_model_parallel_is_initialized(nxd_context_t* ctx);

/** [local] Ranks in this rank's group along an axis.
 *  @return NXD_OK; INVALID_ARGUMENT (axis); INVALID_STATE (not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_size(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_size);

/** [local] This rank's place in its group along an axis.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank);

/** [local] World rank of the first member of this rank's group along an axis.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_source_rank(nxd_context_t* ctx, nxd_axis_t axis,
                                                  int32_t* out_rank);

/** [local] This rank's group along an axis; borrowed from the context until the layout is
 *  destroyed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_group(nxd_context_t* ctx, nxd_axis_t axis,
                                            nxd_group_t** out_group);

/** [local] All groups along an axis: their number, and the ranks of one by index.
 *
 *  @param index  0..count-1; the ranks come as from nxd_layout_get_group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_group_list(nxd_context_t* ctx, nxd_axis_t axis, int32_t index,
                                                 int32_t* ranks, size_t cap, size_t* out_size,
                                                 int32_t* out_count);

/** [local] World rank of the next pipeline stage; the last stage's next is the first.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_pipeline_next_rank(nxd_context_t* ctx, int32_t* out_rank);

/** [local] World rank of the previous pipeline stage; the first stage's previous is the last.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_pipeline_previous_rank(nxd_context_t* ctx, int32_t* out_rank);

#ifdef __cplusplus
}
#endif

#endif /* NXD_PARALLEL_H */
