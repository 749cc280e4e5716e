/** @file
 * Pipelines over buffers: schedules, a caller's own stages.
 *
 * A pipeline cuts a model into stages that follow one another. With P ranks in the
 * pipeline-parallel group and V chunks on each (virtual stages), stage s is chunk s / P of rank
 * s % P. A batch is cut into microbatches, which travel through the stages one behind another. */
#ifndef NXD_PIPELINE_H
#define NXD_PIPELINE_H

#include "context.h"
#include "dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Orders in which ranks compute. */
typedef int32_t nxd_pp_schedule_kind_t;
enum {
  NXD_PP_SCHEDULE_INVALID = -1,
  NXD_PP_SCHEDULE_DEFAULT = 0,     /**< 1F1B with one chunk, INTERLEAVED with several */
  NXD_PP_SCHEDULE_1F1B = 1,        /**< one forward, one backward (Narayanan et al. 2019, Megatron's
                                      non-interleaved); one chunk */
  NXD_PP_SCHEDULE_INTERLEAVED = 2, /**< 1F1B over several chunks (Narayanan et al. 2021);
                                      microbatches divide by ranks */
  NXD_PP_SCHEDULE_GPIPE = 3,       /**< all forwards, then all backwards (Huang et al. 2019), in
                                      the order of the microbatches */
  NXD_PP_SCHEDULE_ZERO_BUBBLE = 4, /**< ZB-H1: weight gradients fill the bubble (Qi et al. 2023);
                                      one chunk. Rank r of P keeps what it keeps in 1F1B, and of up
                                      to r microbatches more the inputs and output gradients of
                                      linear layers */
  NXD_PP_SCHEDULE_INFERENCE = 5    /**< forwards only */
};

/** The computation of a task. */
typedef int32_t nxd_pp_task_kind_t;
enum {
  NXD_PP_TASK_INVALID = -1,
  NXD_PP_TASK_FORWARD = 0,
  NXD_PP_TASK_BACKWARD = 1,   /**< gradients of inputs and of parameters */
  NXD_PP_TASK_INPUT_GRAD = 2, /**< of inputs alone; a WEIGHT_GRAD follows */
  NXD_PP_TASK_WEIGHT_GRAD = 3
};

/** One computation of one rank. The layout never changes. */
typedef struct nxd_pp_task {
  nxd_pp_task_kind_t kind;
  int32_t microbatch; /**< 0..microbatches - 1 */
  int32_t chunk;      /**< 0..chunks - 1, of the rank's */
} nxd_pp_task_t;

/** The tasks of all ranks, known to be complete and free of deadlock. Immutable. */
typedef struct nxd_pp_schedule nxd_pp_schedule_t;

/** [local] Makes one of the library's schedules.
 *
 *  @param ranks   of the pipeline, at least 1.
 *  @param chunks  of each rank, at least 1.
 *  @return NXD_OK; INVALID_ARGUMENT (a shape that the schedule does not admit: the message names
 *          its needs).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_create(nxd_pp_schedule_kind_t kind, int32_t ranks,
                                            int32_t chunks, int32_t microbatches,
                                            nxd_pp_schedule_t** out_schedule);

/** [local] Makes a schedule of the caller's tasks, and verifies it.
 *
 *  Every stage computes every microbatch once forwards; and, if there are backward tasks at all,
 *  once backwards: in one task, or in an INPUT_GRAD and a later WEIGHT_GRAD. Tasks that
 *  make the input gradients of a chunk come in the order of the microbatches, and so do those that
 *  make its weight gradients: sums over microbatches then have the same bits in every schedule.
 *  Ranks make their tasks in order, send without waiting, and wait for what they receive.
 *  @param tasks   those of rank 0 in the order it makes them, then those of rank 1 and so on.
 *  @param counts  how many each rank has; of length ranks.
 *  @return NXD_OK; INVALID_ARGUMENT names the first task that is missing, doubled or out of range,
 *          or the tasks that would wait for one another for ever.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_create_tasks(int32_t ranks, int32_t chunks,
                                                  int32_t microbatches, const nxd_pp_task_t* tasks,
                                                  const size_t* counts,
                                                  nxd_pp_schedule_t** out_schedule);

/** [local] The tasks of a rank, in order, by the rule of nxd_layout_get_group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_get_tasks(nxd_pp_schedule_t* schedule, int32_t rank,
                                               nxd_pp_task_t* tasks, size_t cap, size_t* out_count);

/** [local] Name of a schedule, such as "1F1B"; borrowed from it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_get_name(nxd_pp_schedule_t* schedule, const char** out_name);

/** Durations to judge a schedule by, in any one unit. */
typedef struct nxd_pp_costs {
  size_t struct_size;
  const double* forward;         /**< of one microbatch, of each stage; NULL: 1 */
  const double* backward_input;  /**< NULL: as forward */
  const double* backward_weight; /**< NULL: as forward; a BACKWARD task takes both */
  double transfer;               /**< of values or gradients between stages on different ranks */
} nxd_pp_costs_t;

#define NXD_PP_COSTS_INIT \
  { sizeof(nxd_pp_costs_t), NULL, NULL, NULL, 0.0 }

/** [local] Fills costs with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_costs_init(nxd_pp_costs_t* costs, size_t size);

/** Times of a schedule under given costs. */
typedef struct nxd_pp_report {
  size_t struct_size;
  double makespan;      /**< until the last rank is done */
  double critical_path; /**< longest chain of tasks and transfers that depend on one another, were
                           there as many processors as tasks */
  double bubble_share;  /**< idle time of all ranks over ranks * makespan, 0 to 1 */
  int32_t peak_activations; /**< microbatches of a chunk, forwards done and weight gradients not,
                               that the fullest rank keeps at once; 0 without backward tasks */
  int32_t fullest_rank;     /**< the first one, if several are */
} nxd_pp_report_t;

/** [local] Simulates a schedule.
 *  @param costs         NULL: all 1, free transfers.
 *  @param[in,out] out_report  struct_size set by the caller; the rest is filled.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_get_report(nxd_pp_schedule_t* schedule,
                                                const nxd_pp_costs_t* costs,
                                                nxd_pp_report_t* out_report);

/** [local] Releases a schedule; pipelines made with it keep what they need.
 *  @since 0.1 */
NXD_API void nxd_pp_schedule_destroy(nxd_pp_schedule_t* schedule);

/** A tensor that goes from one stage to the next, of the same shape in every microbatch. */
typedef struct nxd_pp_value {
  const char* name;     /**< for messages */
  const int64_t* shape; /**< of one microbatch */
  int32_t ndim;
  nxd_dtype_t dtype;
  int32_t needs_grad; /**< 1: its gradient, of the same shape and dtype, comes back */
  int32_t reserved;   /**< 0 */
} nxd_pp_value_t;

/** The stage, chunk and microbatch that a callback is called for. */
typedef struct nxd_pp_call {
  int32_t stage; /**< 0..P * V - 1 */
  int32_t chunk; /**< of this rank's */
  int32_t microbatch;
  int32_t last;       /**< 1: no later task of this run adds to this chunk's parameter gradients */
  double loss_weight; /**< what the loss of this microbatch is multiplied by: scale its gradient so.
                         It is 1 / microbatches */
} nxd_pp_call_t;

/** A rank's stages, computed by the caller. Tensors are CPU tensors in C order of the values'
 *  shapes, borrowed for the call, except inputs, which stay as they are until the microbatch's last
 *  backward task. Called on the thread that is inside nxd_pp_run. */
typedef struct nxd_pp_stage_callbacks {
  size_t struct_size;
  void* user_data;
  nxd_destroy_fn destroy; /**< may be NULL */
  /** Fills outputs; in the last stage sets *out_loss, which is NULL in others. */
  nxd_status_t (*forward)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                          DLTensor* const* outputs, double* out_loss, void* user_data);
  /** Fills grad_inputs and adds to the parameters' gradients. grad_outputs and grad_inputs are NULL
   *  where a value needs no gradient. In the last stage there are no outputs: the loss is
   *  differentiated. */
  nxd_status_t (*backward)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                           DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                           void* user_data);
  /** Fills grad_inputs alone; NULL: not possible, and schedules with such tasks are rejected. */
  nxd_status_t (*backward_input)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                 DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                                 void* user_data);
  /** Adds to the parameters' gradients, some time after backward_input. */
  nxd_status_t (*backward_weight)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                  DLTensor* const* grad_outputs, void* user_data);
} nxd_pp_stage_callbacks_t;

/** The way in which losses of microbatches add up. */
typedef int32_t nxd_pp_loss_t;
enum {
  NXD_PP_LOSS_INVALID = -1,
  NXD_PP_LOSS_DEFAULT =
      0, /**< TOKENS for a built-in model that is given labels, else MICROBATCHES */
  NXD_PP_LOSS_MICROBATCHES = 1, /**< the mean of the microbatches' losses */
  NXD_PP_LOSS_TOKENS = 2        /**< the mean over the valid tokens of all microbatches and
                                   data-parallel ranks: see nxd_loss_weights */
};

/** A model's or a caller's stages on this rank, and the schedule they run by. */
typedef struct nxd_pp nxd_pp_t;

/** Options of nxd_pp_create_callbacks; the same on all ranks of the pipeline. */
typedef struct nxd_pp_callbacks_options {
  size_t struct_size;
  int32_t num_microbatches;           /**< 0: 1 */
  int32_t virtual_size;               /**< chunks of each rank; 0: 1 */
  nxd_pp_schedule_kind_t schedule;    /**< of training */
  int32_t broadcast_and_average_loss; /**< 1: every rank gets the mean over data-parallel ranks;
                                         0: the last stage's rank gets its own, others 0 */
  nxd_pp_schedule_t* custom_schedule; /**< instead of schedule; NULL: none */
} nxd_pp_callbacks_options_t;

#define NXD_PP_CALLBACKS_OPTIONS_INIT \
  { sizeof(nxd_pp_callbacks_options_t), 1, 0, NXD_PP_SCHEDULE_DEFAULT, 0, NULL }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_callbacks_options_init(nxd_pp_callbacks_options_t* options,
                                                   size_t size);

/** [collective: the pipeline-parallel group] A pipeline whose stages the caller computes.
 *
 *  @param inputs   of this rank's chunks one after the other: what comes from the stage before.
 *                  Stage 0 has none: its callback reads its data itself. NULL when there are none.
 *  @param outputs  likewise for the stage after, whose inputs they equal in all but names.
 *  @param num_inputs  how many each chunk has; of length virtual_size.
 *  @param num_outputs  likewise; the last stage has none.
 *  @param callbacks  copied; on failure destroy is not called.
 *  @return NXD_OK; INVALID_ARGUMENT (also when neighbours or options do not agree, on all ranks);
 *          INVALID_STATE (model parallel not initialised); UNSUPPORTED (context- or expert-parallel
 *          ranks); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_create_callbacks(
    nxd_context_t* ctx, const nxd_pp_callbacks_options_t* options, const nxd_pp_value_t* inputs,
    const size_t* num_inputs, const nxd_pp_value_t* outputs, const size_t* num_outputs,
    const nxd_pp_stage_callbacks_t* callbacks, nxd_pp_t** out_pp);

/** [collective: pipeline- and data-parallel groups] One step of a pipeline over callbacks:
 *  forwards and backwards of all microbatches, or, without training, forwards alone.
 *
 *  The data-parallel group takes part with broadcast_and_average_loss alone.
 *
 *  Before a message goes, the ranks of the pipeline compare training: where it differs, or one of
 *  them has a bad one, all get INVALID_ARGUMENT, and the next run may begin.
 *
 *  Gradients of parameters are the caller's, added up over microbatches. Messages go over the
 *  pipeline-parallel group, with tags from 65533 on.
 *
 *  When a callback fails, all ranks that still have to do with the run fail with its status, and
 *  their messages name its rank, stage and microbatch; with broadcast_and_average_loss the others
 *  get INVALID_ARGUMENT, without it they may have been done. The next run may begin.
 *  @param training  1 or 0, the same on all ranks of the pipeline.
 *  @param[out] out_loss  mean of the microbatches' losses: see broadcast_and_average_loss. NaN
 *                        where a callback set none. May be NULL.
 *  @return NXD_OK; a callback's error; INVALID_ARGUMENT (training, on all ranks); INVALID_STATE
 *          (the schedule has no backward tasks, or the stages are modules); TIMEOUT or PEER_LOST:
 *          within the run the message names the task that waited, its stage and microbatch, and
 *          the peer; the group is poisoned, as it is when the interrupt callback ends a wait.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run(nxd_pp_t* pp, int32_t training, double* out_loss);

/** [local] Tells whether this rank has the last stage, and so the losses.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_has_loss(nxd_pp_t* pp, int32_t* out_has);

/** [local] The schedule of training runs; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_schedule(nxd_pp_t* pp, nxd_pp_schedule_t** out_schedule);

/** [local] Bytes of the buffers that the pipeline receives into on this rank: kept from run to
 *  run, and as many as the schedule needs at once.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_buffer_bytes(nxd_pp_t* pp, uint64_t* out_bytes);

/** [local] Records when tasks, messages and waits begin and end, in all runs from now on (1), or
 *  no longer (0). Starting forgets what was recorded.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_set_timeline(nxd_pp_t* pp, int32_t on);

/** [collective: world] Writes what all ranks recorded, on rank 0 of the world: as a trace that
 *  chrome://tracing and Perfetto read, and scripts/draw_timeline draws. The path ends in ".json".
 *  Ranks not the first of their tensor- and data-parallel groups have recorded alike and are left
 *  out.
 *  @return NXD_OK; INVALID_ARGUMENT (path); INVALID_STATE (nothing recorded); IO, on all ranks;
 *          TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_write_timeline(nxd_pp_t* pp, const char* path);

/** [local] Releases the pipeline. The model, if it has one, stays in parts: its parameters outside
 *  of this rank's stages have no values.
 *  @since 0.1 */
NXD_API void nxd_pp_destroy(nxd_pp_t* pp);

/** The way in which a model is cut into stages. */
typedef int32_t nxd_pp_partition_t;
enum {
  NXD_PP_PARTITION_INVALID = -1,
  NXD_PP_PARTITION_DEFAULT = 0, /**< at pipeline_cuts if given, else EVEN */
  NXD_PP_PARTITION_EVEN = 1,    /**< as many layers everywhere, the remainder in the later stages */
  NXD_PP_PARTITION_COST = 2     /**< the most expensive stage is as cheap as can be: floating-point
                                   operations, counted from shapes, of layers, embedding, head and
                                   loss */
};

#ifdef __cplusplus
}
#endif

#endif /* NXD_PIPELINE_H */
