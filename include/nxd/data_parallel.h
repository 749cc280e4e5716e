/** @file
 * Data parallelism over buffers.
 *
 * Data-parallel ranks hold the same parameters and see different data. A nxd_ddp_t reduces their
 * gradients over a group, in buckets, during the backward pass. With ZeRO stage 1 (Rajbhandari et
 * al. 2020) each rank gets the reduced gradients of one part of every bucket. It keeps the
 * optimizer's state for that part alone and updates it; then the parts are gathered. Parameters and
 * gradients are either buffers of the caller's (nxd_ddp_create_buffers) or a module's
 * (nxd_ddp_create). Optimizers work over a module (nxd_optimizer_create_adamw) or over either kind
 * of nxd_ddp_t (nxd_optimizer_create_adamw_ddp), and are used alike. */
#ifndef NXD_DATA_PARALLEL_H
#define NXD_DATA_PARALLEL_H

#include "dlpack.h"
#include "group.h"
#include "weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Data parallelism over a set of parameters. */
typedef struct nxd_ddp nxd_ddp_t;

/** Options of nxd_ddp_create and nxd_ddp_create_buffers; the same on all ranks. */
typedef struct nxd_ddp_options {
  size_t struct_size;
  int64_t bucket_bytes;   /**< 0: 25 MiB; a parameter that is larger has a bucket of its own */
  nxd_reduce_t reduce;    /**< SUM or AVG over the group */
  int32_t zero_stage;     /**< 0, or 1: state is sharded over the group */
  int32_t fp32_grads;     /**< 1: gradients of BF16 parameters of a module are accumulated and
                                 reduced in f32 */
  nxd_toggle_t overlap;   /**< default on; off: buckets are reduced when gradients are finished */
  nxd_toggle_t broadcast; /**< default on: the first rank's parameters are sent to the others */
  int32_t reserved;       /**< 0 */
} nxd_ddp_options_t;

#define NXD_DDP_OPTIONS_INIT \
  { sizeof(nxd_ddp_options_t), 0, NXD_REDUCE_SUM, 0, 0, 0, 0, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_options_init(nxd_ddp_options_t* options, size_t size);

/** [collective: the group] Data parallelism over buffers that the caller owns, such as another
 *  framework's.
 *
 *  Norms are those of the group's ranks alone, until nxd_ddp_set_placements or _set_shards says how
 *  the model is split over other ranks. Before that max_norm, nxd_optimizer_save and _snapshot are
 *  UNSUPPORTED in a layout with tensor- or pipeline-parallel ranks, unless the group is the whole
 *  world; and check_finite skips an update on the group's ranks alone, so that other ranks which
 *  have the same parameters may go on without it.
 *  @param group   NULL: the data-parallel group, or the world where model parallelism is not
 *                 initialised.
 *  @param names   of the parameters, each once: what nxd_optimizer_add_group, saved states and
 *                 random bits key on; NULL: "0", "1" and so on.
 *  @param params  CPU tensors without gaps, in C order or another order of dimensions, such as
 *                 channels last: F32, F64 or BF16, the same on all ranks, in the order of use. The
 *                 structs are borrowed for the call; the memory until the ddp and its optimizers
 *                 are destroyed, or nxd_ddp_rebind. Each parameter and gradient has memory of its
 *                 own: a tied one is given once.
 *  @param grads   of the parameters' shapes and orders of dimensions, of their dtype, or F32 for
 *                 BF16. Gradients are summed over backward passes by the caller, and reduced in
 *                 place: with zero_stage 1 only this rank's part of them is meaningful afterwards.
 *  @return NXD_OK; INVALID_ARGUMENT, also when ranks differ; UNSUPPORTED (group NULL with context-
 *          or expert-parallel ranks); OUT_OF_MEMORY; ABI_MISMATCH; TIMEOUT; PEER_LOST. All ranks
 *          fail when one does, but for a ctx or group that is none.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_create_buffers(nxd_context_t* ctx, nxd_group_t* group,
                                            const char* const* names, DLTensor* const* params,
                                            DLTensor* const* grads, size_t num_params,
                                            const nxd_ddp_options_t* options, nxd_ddp_t** out_ddp);

/** How the ranks of the tensor-parallel group hold a parameter. */
typedef int32_t nxd_placement_t;
enum {
  NXD_PLACEMENT_INVALID = -1,
  NXD_PLACEMENT_SHARDED = 0,     /**< each rank has an equal part along one dimension, in the order
                                      of the ranks and without padding; else nxd_ddp_set_shards */
  NXD_PLACEMENT_REPLICATED = 1,  /**< the same values on all ranks, and the same gradient */
  NXD_PLACEMENT_PARTIAL_GRAD = 2 /**< the same values; gradients are summed over the group when they
                                      are finished, such as those of norms under sequence
                                      parallelism */
};

/** [collective: tensor-, pipeline- and data-parallel groups] Says how the parameters of a ddp over
 *  buffers are parts of a model. From then on norms and clipping are those of the whole model, each
 *  element counted once, and a saved state is one file with whole arrays, which every layout reads.
 *  nxd_ddp_finish, nxd_optimizer_step and nxd_optimizer_save are then collective over these groups.
 *
 *  Before gradients are marked and before the first step. The ddp's group must be the data-parallel
 *  group. Parameters of different pipeline stages have different names, unless they are tied.
 *  @param placements  of all parameters, the same on the ranks of a stage.
 *  @param dims        of sharded parameters: the dimension that is split; NULL: 0 for all.
 *  @param tied        1 for a parameter that another pipeline stage has too and counts in norms;
 *                     its gradient is complete on both. NULL: 0 for all.
 *  @param num_params  nxd_ddp_get_count.
 *  @return NXD_OK; INVALID_ARGUMENT, also when ranks differ (on all of them); INVALID_STATE (no
 *          nxd_init_model_parallel, a ddp of a module, gradients marked, a step made); UNSUPPORTED
 *          (context- or expert-parallel ranks); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_set_placements(nxd_ddp_t* ddp, const nxd_placement_t* placements,
                                            const int32_t* dims, const int32_t* tied,
                                            size_t num_params);

/** [collective: tensor-, pipeline- and data-parallel groups] nxd_ddp_set_placements for parameters
 *  that ranks hold other parts of than equal consecutive ones: padded vocabularies, fused weights,
 *  key heads that several ranks share. A saved state has them as a model on one rank would: without
 *  padding, fused weights one after another, each head once.
 *
 *  @param shards         of all parameters, alike on the ranks of a stage: the options that their
 *                        arrays are filled and gathered by (nxd_shard_initialize). NULL where each
 *                        rank has the whole parameter.
 *  @param partial_grads  1: the ranks that hold the same elements, such as a norm's or a shared
 *                        head's, have parts of their gradient, which are summed over these ranks
 *                        when gradients are finished. 0: each of them has it complete. NULL: 0 for
 *                        all.
 *  @param tied           as of nxd_ddp_set_placements.
 *  @param num_params     nxd_ddp_get_count.
 *  @return as nxd_ddp_set_placements; INVALID_ARGUMENT also for shards that no whole parameter has.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_set_shards(nxd_ddp_t* ddp, const nxd_shard_options_t* const* shards,
                                        const int32_t* partial_grads, const int32_t* tied,
                                        size_t num_params);

/** [local] Says that a buffer has moved, for frameworks that allocate new gradients.
 *
 *  At any time before the parameter is marked in a step, such as in the hook that then marks it.
 *  Reductions of other parameters may be under way. Memory that was left is not touched any more.
 *  A gradient that is freed between steps is bound anew, or its parameter's reduction would use it:
 *  at the latest before nxd_ddp_finish or nxd_optimizer_step, and for a parameter that is marked
 *  unused too, whose gradient is written where other ranks have used it.
 *  @param param  NULL: as before. Values of memory at another address are read anew; values that
 *                were replaced where they lie are told by nxd_ddp_mark_reloaded.
 *  @param grad   NULL: as before.
 *  @return NXD_OK; INVALID_ARGUMENT (another shape or dtype); INVALID_STATE (a ddp of a module, or
 *          the parameter is marked in this step).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_rebind(nxd_ddp_t* ddp, size_t index, DLTensor* param, DLTensor* grad);

/** [local] Number of parameters.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_get_count(nxd_ddp_t* ddp, size_t* out_count);

/** [local] Name of a parameter; borrowed from the ddp.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_get_name(nxd_ddp_t* ddp, size_t index, const char** out_name);

/** [collective: the group] Says that a gradient is complete for this step; when all of a bucket's
 *  are, and the buckets before it have started, its reduction starts.
 *
 *  For buffers; a module's ddp sees its gradients itself. Ranks may mark in different orders.
 *  Marking only overlaps the reduction with the backward pass. Parameters that are not marked are
 *  reduced, as they are, when gradients are finished.
 *  @return NXD_OK; INVALID_ARGUMENT (index); INVALID_STATE (marked twice, nxd_ddp_set_sync off, or
 *          a module's ddp); an error of an earlier bucket's reduction.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_mark_ready(nxd_ddp_t* ddp, size_t index);

/** [collective: the group] Marks a parameter that took no part in this step on this rank: its
 *  gradient counts as zeros, and may be overwritten by them. One that took part on no rank is left
 *  alone by nxd_optimizer_step, and by nxd_optimizer_update after nxd_ddp_finish.
 *  @return as nxd_ddp_mark_ready.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_mark_unused(nxd_ddp_t* ddp, size_t index);

/** [local] Reduces during the next backward passes (1, the default), or lets gradients add up (0):
 *  off for all microbatches of a step but the last.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_set_sync(nxd_ddp_t* ddp, int32_t sync);

/** [local] Bytes of buckets that the ddp holds on this rank. A module's gradients lie in them; over
 *  buffers they come beside parameters and gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_get_buffer_bytes(nxd_ddp_t* ddp, uint64_t* out_bytes);

/** [local] Says that the caller's buffers hold the values of one step again, after a step that
 *  left them PARTIAL. A module's parameters know: nxd_parameter_set_full,
 *  nxd_module_load_safetensors and nxd_module_initialize make them whole.
 *  @return NXD_OK; INVALID_STATE (a module's ddp).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_mark_reloaded(nxd_ddp_t* ddp);

/** [blocking] Waits for reductions under way and releases the ddp; optimizers over it keep what
 *  they need.
 *  @since 0.1 */
NXD_API void nxd_ddp_destroy(nxd_ddp_t* ddp);

/** Options for the completion of gradients. */
typedef struct nxd_finish_options {
  size_t struct_size;
  double scale;     /**< factor on all gradients before the norm, a normal number of F32; 0: 1 */
  double max_norm;  /**< gradients are scaled to this norm when theirs exceeds it and is finite; 0:
                         no clipping */
  double norm_type; /**< 0: 2; 1 and infinity too */
  nxd_reduce_t data_parallel_reduce; /**< SUM or AVG over data-parallel ranks; a ddp's own option
                                        counts where there is one */
  nxd_toggle_t check_finite;         /**< default on; off: a norm that is not finite is no error */
} nxd_finish_options_t;

#define NXD_FINISH_OPTIONS_INIT \
  { sizeof(nxd_finish_options_t), 0.0, 0.0, 0.0, NXD_REDUCE_SUM, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_finish_options_init(nxd_finish_options_t* options, size_t size);

/** [collective: tensor-, pipeline- and data-parallel groups] Finishes the gradients of a ddp of
 *  zero_stage 0: waits for the reductions, then does what nxd_finish_grads does. An update by
 *  nxd_optimizer_update may follow. Another nxd_ddp_finish, or nxd_optimizer_step, would reduce the
 *  same gradients again: the caller fills them anew before.
 *  @param[out] out_norm  as nxd_finish_grads; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_finish(nxd_ddp_t* ddp, const nxd_finish_options_t* options,
                                    double* out_norm);

/** [local] Gives the samples of a data set that a data-parallel rank takes in an epoch: as
 *  torch.utils.data.DistributedSampler, with a permutation of this library's own.
 *
 *  Every epoch is one permutation of all samples, the same on all ranks; rank r takes places r,
 *  r + ranks and so on. Without drop_last the permutation is continued from its start until the
 *  ranks have equally many; with it the tail is dropped.
 *  @param shuffle  0: the samples in order.
 *  @param[out] out_indices  room for cap indices; cap 0: only the count is wanted.
 *  @param[out] out_count    indices of this rank, also when they exceed cap: then nothing is
 *                           copied, and a cap other than 0 is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_sample_epoch(int64_t num_samples, int32_t ranks, int32_t rank,
                                      int64_t epoch, uint64_t seed, int32_t shuffle,
                                      int32_t drop_last, int64_t* out_indices, size_t cap,
                                      size_t* out_count);

#ifdef __cplusplus
}
#endif

#endif /* NXD_DATA_PARALLEL_H */
