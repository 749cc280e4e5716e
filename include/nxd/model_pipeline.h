/** @file
 * Pipelines of modules.
 *
 * A model is traced, cut into stages, and run by a schedule. Parameters keep their names. */
#ifndef NXD_MODEL_PIPELINE_H
#define NXD_MODEL_PIPELINE_H

#include "data_parallel.h"
#include "module.h"
#include "pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A caller's rule for tracing: whether a module is a leaf, which the graph calls as one node.
 *  Built-in layers, and modules without children, always are. All ranks must answer alike.
 *
 *  @param path             from the root; of a module that is in no place of the tree its class.
 *  @param[in,out] is_leaf  comes with what leaf_modules and transformer_layer_class say, 0 or 1. */
typedef nxd_status_t (*nxd_leaf_fn)(nxd_module_t* module, const char* path, int32_t* is_leaf,
                                    void* user_data);

/** Gives a parameter on the meta device its initial values. name is its path from the root; tensor
 *  is this rank's shard, to be filled. */
typedef nxd_status_t (*nxd_param_init_fn)(nxd_parameter_t* parameter, const char* name,
                                          nxd_tensor_t* tensor, void* user_data);

/** Options of nxd_pp_create; the same on all ranks. Strings and lists are copied. */
typedef struct nxd_pp_options {
  size_t struct_size;
  int32_t num_microbatches;        /**< 0: 1; divides the batch, dimension 0 of every input */
  int32_t virtual_size;            /**< virtual_pipeline_size, chunks of each rank; 0: 1 */
  nxd_pp_schedule_kind_t schedule; /**< of training */
  nxd_pp_partition_t partition;
  nxd_pp_schedule_t* custom_schedule;  /**< instead of schedule; NULL: none */
  const char* transformer_layer_class; /**< a leaf, and what EVEN and COST count in; NULL: that
                                          of a built-in model */
  const char* const* pipeline_cuts;    /**< paths of modules, each the last of its stage */
  size_t num_cuts;
  const char* const* leaf_modules; /**< more leaves, by class name or by path */
  size_t num_leaf_modules;
  const char* const* input_names; /**< of the model's inputs; NULL: a built-in model's own,
                                     else "input_0" and so on */
  size_t num_input_names;
  int32_t num_outputs; /**< of the model's forward; 0: 1, or with loss_path all that a module of a
                          TorchScript file gives */
  int32_t loss_output; /**< which of them is the loss: a scalar */
  nxd_pp_loss_t loss;
  int32_t has_labels_input; /**< with TOKENS: 1: labels_input has the labels; 0: the input named
                               "labels" */
  int32_t labels_input;
  int32_t has_ignore_index; /**< with TOKENS: 1: labels of ignore_index do not count; 0: of -100 */
  int64_t ignore_index;
  int32_t labels_shifted;             /**< with TOKENS: 1: labels are used as they are; 0: the
                                         first label of a row predicts nothing, but for a BERT */
  int32_t broadcast_and_average_loss; /**< 1: every rank gets the loss of all data-parallel
                                         ranks; not with return_mb_loss */
  int32_t return_mb_loss;             /**< 1: losses of microbatches: nxd_pp_get_losses */
  int32_t keep_outputs;               /**< 1: a stage's outputs are kept until their backward;
                                         0: let go once sent (deallocate_pipeline_outputs) */
  nxd_param_init_fn param_init;       /**< for parameters on the meta device; NULL: the
                                         built-in initialisers, by seed and name */
  void* param_init_data;
  const char* trace_file_path; /**< the graph as text, or as DOT if it ends in ".dot";
                                  written on rank 0; NULL: not */
  nxd_leaf_fn leaf_rule;       /**< NULL: leaves are those named above */
  void* leaf_rule_data;        /**< used as long as the pipeline lives */
  const char* loss_path; /**< output_loss_value_spec: the path of the loss in the outputs of the
                            model's forward (nxd_module_get_output_path), such as "losses.lm";
                            NULL: the loss is loss_output, which is 0 otherwise */
} nxd_pp_options_t;

#define NXD_PP_OPTIONS_INIT                                                                        \
  {                                                                                                \
    sizeof(nxd_pp_options_t), 1, 0, NXD_PP_SCHEDULE_DEFAULT, NXD_PP_PARTITION_DEFAULT, NULL, NULL, \
        NULL, 0, NULL, 0, NULL, 0, 0, 0, NXD_PP_LOSS_DEFAULT, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL,  \
        NULL, NULL, NULL, NULL                                                                     \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_options_init(nxd_pp_options_t* options, size_t size);

/** [collective: the pipeline-parallel group] Traces a model, cuts it and keeps this rank's stages.
 *
 *  Parameters outside of this rank's stages lose their values; those inside that are on the meta
 *  device get theirs. Parameters that several stages share are made equal to their owner's, that of
 *  the first stage that has them, and their gradients are summed by every training run, in F32
 *  where a ddp keeps them so; their gradient hooks are called at its end, once. A call that is
 *  rejected on one rank is rejected on all, and leaves the model whole on all of them. With
 *  NXD_PP_PARTITION_COST the tensor-parallel group takes part as well, whose ranks add up costs.
 *
 *  A parameter may be frozen and thawed later (nxd_parameter_set_trainable) on the ranks whose
 *  stages have it, all of them: the next run traces the model again.
 *  @param model    the root; kept alive. Its forward runs once, on tensors without data: reading a
 *                  value fails, and the message names the module and the operation.
 *  @param inputs   examples of the inputs of one run, whose shapes and dtypes count: dimension 0 is
 *                  the batch. They may be on the meta device; NULL: left out in every run.
 *  @return NXD_OK; INVALID_ARGUMENT (names of cuts, leaves or inputs, or the path of the loss,
 *          unknown: the nearest are given; a path that leads to several outputs, or to one that is
 *          no scalar; sizes that do not divide; a schedule that does not admit the shape; cuts,
 *          inputs or settings of the loss that differ between ranks of the pipeline; a parameter of
 *          several stages that is frozen on some of their ranks alone);
 *          INVALID_STATE (model parallel not initialised; a value is read; a ddp has a parameter
 *          of another rank's stages); UNSUPPORTED (an operator without a shape function; context-
 *          or expert-parallel ranks); IO (trace_file_path, in the pipeline of rank 0 alone); a
 *          callback's error; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_create(nxd_module_t* model, nxd_tensor_t* const* inputs,
                                   size_t num_inputs, const nxd_pp_options_t* options,
                                   nxd_pp_t** out_pp);

/** [collective: pipeline- and data-parallel groups] Forwards and backwards of all microbatches of
 *  a batch.
 *
 *  The data-parallel group takes part with a loss over tokens, or broadcast_and_average_loss.
 *
 *  With a loss over tokens, a microbatch that has none has no part in loss and gradients, whatever
 *  the model's loss of it is.
 *
 *  Gradients add to those there are, microbatch by microbatch, and are partial as after
 *  nxd_backward: a ddp given by nxd_pp_set_ddp reduces them as they become complete;
 *  nxd_optimizer_step or nxd_finish_grads over nxd_pp_get_local_module completes them.
 *
 *  Random bits are drawn for the context's step, and for microbatches from the context's on
 *  (nxd_context_set_step). A run that succeeds moves the context on by num_microbatches, so that
 *  another run of the step draws other bits; nxd_optimizer_step goes back to microbatch 0. A run
 *  that fails on a rank, or evaluates, leaves the context there as it was. After a failure, set it
 *  on all ranks.
 *  @param inputs  those of nxd_pp_create, the same on all ranks of the pipeline; another batch or
 *                 sequence length makes the model be traced again, and so do training after
 *                 evaluation and parameters that were frozen or thawed.
 *  @param[out] out_loss  on the rank with the last stage, or with broadcast_and_average_loss
 *                        everywhere; else 0. May be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run_train(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t num_inputs,
                                      double* out_loss);

/** [collective: as nxd_pp_run_train] Forwards alone, without recording gradients, in evaluation
 *  mode.
 *
 *  @param[out] out_loss  as of nxd_pp_run_train; 0 when the model gives no loss. May be NULL.
 *  @param outputs  filled, on the rank with the last stage, with num_outputs new handles: the
 *                  model's outputs of all microbatches, joined along dimension 0, scalars as a
 *                  vector; the caller destroys them. NULL elsewhere. outputs itself may be NULL
 *                  when num_outputs is 0. They come in the order of nxd_pp_get_output_path.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run_eval(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t num_inputs,
                                     double* out_loss, nxd_tensor_t** outputs, size_t num_outputs);

/** [collective: as nxd_pp_run_train] nxd_pp_run_train with inputs by their names, in any order.
 *
 *  @param names   num_inputs names: those of the options' input_names, or a built-in model's own
 *                 ("input_ids", "labels" and so on), each once. An input that no name gives is left
 *                 out, and must have been left out of nxd_pp_create's.
 *  @param inputs  their tensors.
 *  @return as nxd_pp_run_train; INVALID_ARGUMENT on all ranks of the pipeline for a name that is
 *          unknown (the nearest are given) or comes twice.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run_train_named(nxd_pp_t* pp, const char* const* names,
                                            nxd_tensor_t* const* inputs, size_t num_inputs,
                                            double* out_loss);

/** [collective: as nxd_pp_run_train] nxd_pp_run_eval with inputs by their names, as of
 *  nxd_pp_run_train_named.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run_eval_named(nxd_pp_t* pp, const char* const* names,
                                           nxd_tensor_t* const* inputs, size_t num_inputs,
                                           double* out_loss, nxd_tensor_t** outputs,
                                           size_t num_outputs);

/** [local] Losses of the last run's microbatches, on the rank with the last stage, by the rule of
 *  nxd_layout_get_group; with return_mb_loss.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_losses(nxd_pp_t* pp, double* losses, size_t cap, size_t* out_count);

/** [local] Reduces gradients during training runs: the ddp is off for all microbatches but the
 *  last. NULL ends that. The pipeline does not keep the ddp alive: set NULL before the ddp is
 *  destroyed. While nxd_ddp_set_sync is off, gradients of runs add up, and none is reduced.
 *  @param ddp  over nxd_pp_get_local_module.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_set_ddp(nxd_pp_t* pp, nxd_ddp_t* ddp);

/** [local] Number of outputs that nxd_pp_run_eval gives at most.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_output_count(nxd_pp_t* pp, size_t* out_count);

/** [local] Path of an output, on any rank: as nxd_module_get_output_path gives it. Borrowed until
 *  the next run: one with other shapes may give others.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_output_path(nxd_pp_t* pp, size_t index, const char** out_path);

/** [local] The part of the model that this rank has: a tree of the same names whose modules and
 *  parameters are those of its stages; borrowed. Optimizers, ddps, saving and loading take it as a
 *  root.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_local_module(nxd_pp_t* pp, nxd_module_t** out_module);

/** [local] Number of modules that this rank's stages call, and the path of each; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_local_module_count(nxd_pp_t* pp, size_t* out_count);

/** [local] Path of a module that this rank's stages call; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_local_module_name(nxd_pp_t* pp, size_t index,
                                                  const char** out_name);

/** [local] Number of cuts: one less than stages.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_cut_count(nxd_pp_t* pp, size_t* out_count);

/** [local] Path of the module that a cut comes after; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_cut(nxd_pp_t* pp, size_t index, const char** out_name);

/** [local] The traced graph as text; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_graph_text(nxd_pp_t* pp, const char** out_text);

/** [local] Number of modules and operators of this rank's stages whose weight gradients cannot be
 *  put off: in a zero-bubble schedule these are made together with their input gradients.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_unsplit_count(nxd_pp_t* pp, size_t* out_count);

/** [local] Name of such a parameter's node; borrowed. Known after a first training run.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_unsplit_name(nxd_pp_t* pp, size_t index, const char** out_name);

#ifdef __cplusplus
}
#endif

#endif /* NXD_MODEL_PIPELINE_H */
