/** @file
 * Optimizers, and learning rates over time.
 *
 * A step, on every rank: backward passes, then nxd_optimizer_step, which completes the gradients,
 * takes their norm, clips and updates. A program that looks at gradients in between calls
 * nxd_finish_grads or nxd_ddp_finish, then nxd_optimizer_update. */
#ifndef NXD_OPTIMIZER_H
#define NXD_OPTIMIZER_H

#include "checkpoint.h"
#include "data_parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Learning rates over time; all rise linearly from rate / warmup_steps over the warm-up. */
typedef int32_t nxd_lr_schedule_t;
enum {
  NXD_LR_SCHEDULE_INVALID = -1,
  NXD_LR_SCHEDULE_CONSTANT = 0,
  NXD_LR_SCHEDULE_LINEAR = 1, /**< down to final_factor at total_steps */
  NXD_LR_SCHEDULE_COSINE = 2  /**< the same along half a cosine (Loshchilov and Hutter 2017) */
};

/** A schedule of learning rates. Steps count from 0; after total_steps the factor stays. */
typedef struct nxd_lr_schedule_options {
  size_t struct_size;
  nxd_lr_schedule_t kind;
  int32_t reserved; /**< 0 */
  int64_t warmup_steps;
  int64_t total_steps; /**< LINEAR and COSINE: more than warmup_steps */
  double final_factor; /**< of [0, 1] */
} nxd_lr_schedule_options_t;

#define NXD_LR_SCHEDULE_OPTIONS_INIT \
  { sizeof(nxd_lr_schedule_options_t), NXD_LR_SCHEDULE_CONSTANT, 0, 0, 0, 0.0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_lr_schedule_options_init(nxd_lr_schedule_options_t* options, size_t size);

/** [local] The factor on the learning rate at a step, a pure function.
 *  @return NXD_OK; INVALID_ARGUMENT (a field out of range, a negative step).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_lr_schedule_get_factor(const nxd_lr_schedule_options_t* options,
                                                int64_t step, double* out_factor);

/** Updates parameters from their gradients. */
typedef struct nxd_optimizer nxd_optimizer_t;

/** The update of BF16 parameters, whose spacing is wider than most steps. */
typedef int32_t nxd_bf16_update_t;
enum {
  NXD_BF16_UPDATE_INVALID = -1,
  NXD_BF16_UPDATE_MASTER = 0,     /**< an f32 copy is updated, and rounded to nearest */
  NXD_BF16_UPDATE_STOCHASTIC = 1, /**< rounded stochastically; no copy */
  NXD_BF16_UPDATE_NEAREST = 2     /**< to nearest, or as the device does; small steps are lost */
};

/** Formulas of AdamW. */
typedef int32_t nxd_adamw_formula_t;
enum {
  NXD_ADAMW_FORMULA_INVALID = -1,
  NXD_ADAMW_FORMULA_TORCH = 0, /**< torch.optim.AdamW */
  NXD_ADAMW_FORMULA_NXD = 1    /**< NxD Core's: eps beside the uncorrected root; decay last */
};

/** Options of nxd_optimizer_create_adamw. */
typedef struct nxd_adamw_options {
  size_t struct_size;
  double learning_rate; /**< 0: 1e-3 */
  double beta1;         /**< 0: 0.9 */
  double beta2;         /**< 0: 0.999 */
  double eps;           /**< 0: 1e-8 */
  double weight_decay;  /**< 0: none */
  nxd_adamw_formula_t formula;
  nxd_bf16_update_t bf16_update;
} nxd_adamw_options_t;

#define NXD_ADAMW_OPTIONS_INIT                                                     \
  {                                                                                \
    sizeof(nxd_adamw_options_t), 0.0, 0.0, 0.0, 0.0, 0.0, NXD_ADAMW_FORMULA_TORCH, \
        NXD_BF16_UPDATE_MASTER                                                     \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_adamw_options_init(nxd_adamw_options_t* options, size_t size);

/** Options of nxd_optimizer_create_sgd: torch.optim.SGD. */
typedef struct nxd_sgd_options {
  size_t struct_size;
  double learning_rate; /**< 0: 1e-3 */
  double momentum;      /**< of [0, 1) */
  double dampening;     /**< not at a parameter's first update; torch: not at its first with a
                             momentum, which comes later where that was 0 */
  double weight_decay;
  int32_t nesterov; /**< 1: needs a momentum, and no dampening */
  nxd_bf16_update_t bf16_update;
} nxd_sgd_options_t;

#define NXD_SGD_OPTIONS_INIT \
  { sizeof(nxd_sgd_options_t), 0.0, 0.0, 0.0, 0.0, 0, NXD_BF16_UPDATE_MASTER }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_sgd_options_init(nxd_sgd_options_t* options, size_t size);

/** The span of elements of one parameter that a caller's update works on. With ZeRO a parameter may
 *  be split anywhere, so an update treats each element by itself. Valid during the call. */
typedef struct nxd_update {
  size_t struct_size;
  const char* parameter; /**< name */
  int64_t begin;         /**< the first element's index within this rank's parameter */
  int64_t count;         /**< elements */
  nxd_dtype_t dtype;     /**< of param: F32 or F64; BF16 for bf16_update NEAREST */
  nxd_dtype_t grad_dtype;
  void* param;
  const void* grad;
  double grad_scale;    /**< the gradient is to be multiplied by this first */
  void* const* states;  /**< num_states arrays, F64 for a param of F64, else F32; zeros at the
                             first update */
  double learning_rate; /**< with the schedule's factor */
  double weight_decay;
  int64_t step; /**< of this parameter, 1 for its first update */
} nxd_update_t;

/** An update rule of the caller's own. It calls nothing of its optimizer's. One that fails leaves
 * param and states as they were: parameters are OLD after a step's first call, PARTIAL after a
 * later one, and after any where peers of ZeRO-1 store their parts in this rank's memory. */
typedef nxd_status_t (*nxd_update_fn)(const nxd_update_t* update, void* user_data);

/** Options of nxd_optimizer_create_custom. */
typedef struct nxd_custom_optimizer_options {
  size_t struct_size;
  nxd_update_fn update; /**< called on the thread of nxd_optimizer_step or _update */
  void* user_data;
  nxd_destroy_fn destroy; /**< called with user_data when the optimizer is gone; may be NULL */
  double learning_rate;   /**< 0: 1e-3 */
  double weight_decay;
  int32_t num_states;            /**< 0 to 8 */
  nxd_bf16_update_t bf16_update; /**< not STOCHASTIC */
} nxd_custom_optimizer_options_t;

#define NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT \
  { sizeof(nxd_custom_optimizer_options_t), NULL, NULL, NULL, 0.0, 0.0, 0, NXD_BF16_UPDATE_MASTER }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_custom_optimizer_options_init(nxd_custom_optimizer_options_t* options,
                                                       size_t size);

/** [local] AdamW over the parameters of a ddp; see nxd_optimizer_create_adamw.
 *
 *  With zero_stage 1 the state is that of this rank's parts only.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_create_adamw_ddp(nxd_ddp_t* ddp,
                                                    const nxd_adamw_options_t* options,
                                                    nxd_optimizer_t** out_optimizer);

/** [local] SGD over the parameters of a ddp.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_create_sgd_ddp(nxd_ddp_t* ddp, const nxd_sgd_options_t* options,
                                                  nxd_optimizer_t** out_optimizer);

/** [local] A caller's own update rule over the parameters of a ddp.
 *  @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_create_custom_ddp(nxd_ddp_t* ddp,
                                                     const nxd_custom_optimizer_options_t* options,
                                                     nxd_optimizer_t** out_optimizer);

/** [local] Puts parameters into a group with hyperparameters of its own, which start as group 0's.
 *
 *  @param patterns  names, or patterns in which * stands for any characters and ? for one, such as
 *                   "*.bias"; each must match a parameter. A parameter is in the last group that
 *                   took it.
 *  @param[out] out_group  index of the group; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT (a pattern without a match: near names are given).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_add_group(nxd_optimizer_t* optimizer,
                                             const char* const* patterns, size_t num_patterns,
                                             int32_t* out_group);

/** Hyperparameters; see the options of each optimizer. */
typedef int32_t nxd_hyperparameter_t;
enum {
  NXD_HYPERPARAMETER_INVALID = -1,
  NXD_HYPERPARAMETER_LEARNING_RATE = 0, /**< without the schedule's factor */
  NXD_HYPERPARAMETER_WEIGHT_DECAY = 1,
  NXD_HYPERPARAMETER_BETA1 = 2,
  NXD_HYPERPARAMETER_BETA2 = 3,
  NXD_HYPERPARAMETER_EPS = 4,
  NXD_HYPERPARAMETER_MOMENTUM = 5,
  NXD_HYPERPARAMETER_DAMPENING = 6
};

/** [local] Sets a hyperparameter from the next step on.
 *  @param group  -1: of all groups.
 *  @return NXD_OK; INVALID_ARGUMENT (out of range, no such group, or another kind of optimizer's).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_set_hyperparameter(nxd_optimizer_t* optimizer, int32_t group,
                                                      nxd_hyperparameter_t which, double value);

/** [local] A hyperparameter of a group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_hyperparameter(nxd_optimizer_t* optimizer, int32_t group,
                                                      nxd_hyperparameter_t which,
                                                      double* out_value);

/** [local] Makes the learning rate of all groups follow a schedule over the optimizer's updates.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_set_lr_schedule(nxd_optimizer_t* optimizer,
                                                   const nxd_lr_schedule_options_t* options);

/** Report of a step. */
typedef struct nxd_step_report {
  size_t struct_size;   /**< set it before the call */
  double norm;          /**< of all gradients before clipping; the same bits on all ranks */
  double learning_rate; /**< of group 0, with the schedule's factor */
  int64_t updates;      /**< made so far, this one included */
  int32_t skipped;      /**< 1: the norm was not finite, and nothing was updated */
  int32_t reserved;
} nxd_step_report_t;

/** [collective: tensor-, pipeline- and data-parallel groups] Ends a training step: completes the
 *  gradients as nxd_finish_grads does, updates every parameter that has one, and advances the
 *  context's step.
 *
 *  Gradients are left as they are, but for their reduction: the clip factor is applied on the fly.
 *  When their norm is not finite, or after clipping beyond F32, or the factor is below F32's normal
 *  numbers, nothing is updated, the step advances, and the report says so.
 *
 *  Before any change ranks compare what they were given: the options, the updates made so far, the
 *  context's step, and within a stage the update rule, the hyperparameters of groups, the schedule,
 *  and the seed by which copies round BF16. Where they differ all ranks get INVALID_ARGUMENT. A
 *  rejected step stays open: another call goes on with its gradients as they are then, reduced or
 *  not. A mark, a backward pass or a gradient that is written or moved begins a new one.
 *
 *  With parameters on device XLA the updates join the recorded graph. A report has to wait for that
 *  graph; without one the call returns at once, and nxd_mark_step has the errors of the updates.
 *  @param options     NULL: defaults.
 *  @param out_report  may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT and ABI_MISMATCH, on all ranks, also of a report; UNSUPPORTED
 *          (max_norm over a part of a model, see nxd_ddp_create_buffers); INVALID_STATE (parameters
 *          or state are PARTIAL; a module's in a world of several ranks without
 *          nxd_init_model_parallel); TIMEOUT or PEER_LOST: nxd_last_error_info says of which step
 *          this rank's parameters are. Forwards, steps and saves reject PARTIAL parameters until
 *          they are loaded again, and the optimizer's state until nxd_optimizer_load.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_step(nxd_optimizer_t* optimizer,
                                        const nxd_finish_options_t* options,
                                        nxd_step_report_t* out_report);

/** [local] Updates every parameter that has a gradient, from gradients that are finished, and
 *  advances the context's step. Parameters of a ddp that took part on no rank have none.
 *  @return NXD_OK; INVALID_STATE (zero_stage 1, whose updates are collective; gradients of a ddp
 *          that were marked in this step, or whose reduction failed, and that are not finished).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_update(nxd_optimizer_t* optimizer);

/** [local] State in which the last nxd_optimizer_step or _update left this rank's parameters.
 *
 *  Ranks that survive a lost peer may differ; the step and the state tell each where to go on.
 *  @param[out] out_state  NONE before the first step, and once PARTIAL ones are loaded again.
 *  @param[out] out_step   the context's step at that call; -1 before the first; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_parameter_state(nxd_optimizer_t* optimizer,
                                                       nxd_parameter_state_t* out_state,
                                                       int64_t* out_step);

/** [local] Sets the learning rate of all groups from the next step on.
 *  @return NXD_OK; INVALID_ARGUMENT (negative, not finite or beyond F32).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_set_learning_rate(nxd_optimizer_t* optimizer, double rate);

/** [local] The learning rate of group 0 at the next step, with the schedule's factor.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_learning_rate(nxd_optimizer_t* optimizer, double* out_rate);

/** [local] Bytes of state that this rank holds: moments, momentum and f32 copies of parameters.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_state_bytes(nxd_optimizer_t* optimizer, uint64_t* out_bytes);

/** [collective: tensor, data, pipeline groups] Writes the whole state as one safetensors file,
 *  whatever the layout: tensors NAME.STATE in the parameter's whole shape, where STATE is exp_avg,
 *  exp_avg_sq, momentum, state0 and so on, or master, which is the parameter's value where that was
 *  written from outside since the last update. Updates, hyperparameters of groups and the
 *  schedule are in the metadata. Crash-safe.
 *  @return the same on all ranks: NXD_OK; INVALID_ARGUMENT (also of stages whose hyperparameters or
 *          schedules differ, since a file has one); UNSUPPORTED (a ddp over buffers that
 *          are parts of a model, see nxd_ddp_create_buffers); INVALID_STATE (parameters or
 *          state are PARTIAL, or of another layout than the context has now); IO; TIMEOUT;
 *          PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_save(nxd_optimizer_t* optimizer, const char* path);

/** [collective: world] Takes a snapshot of the state for a checkpoint. The file that
 *  nxd_optimizer_save would write now is written when the checkpoint is published, and the
 *  optimizer may go on meanwhile.
 *
 *  The checkpoint shares the state's memory (nxd_optimizer_get_state_bytes) until it is published
 *  or destroyed: a step before that copies it. Without ZeRO-1 data-parallel copy 0 alone does.
 *  @param name  of the file, as for nxd_checkpoint_get_path; the same on all ranks, not that of
 *               another snapshot of the checkpoint, and without .shares.json at its end.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED and INVALID_STATE (as nxd_optimizer_save, and a
 *          checkpoint that is published, or was opened); OUT_OF_MEMORY; TIMEOUT; PEER_LOST. All
 *          ranks fail when one does, but for checkpoint NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_snapshot(nxd_optimizer_t* optimizer,
                                            nxd_checkpoint_t* checkpoint, const char* name);

/** [local] Reads this rank's part of a state that any layout wrote.
 *
 *  Hyperparameters of all groups and the schedule become those of the file, which has them beside
 *  the state; groups are made before the load, of the same parameters as they were. A step on
 *  device XLA that was recorded and has not run runs before, and its error is this call's.
 *  @return NXD_OK; INVALID_ARGUMENT (another kind of optimizer, other parameters or groups); IO;
 *          CORRUPT. After a failure the state is as before.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_load(nxd_optimizer_t* optimizer, const char* path);

/** [local] Releases the optimizer and its state.
 *  @since 0.1 */
NXD_API void nxd_optimizer_destroy(nxd_optimizer_t* optimizer);

#ifdef __cplusplus
}
#endif

#endif /* NXD_OPTIMIZER_H */
