/** @file
 * Modules and parameters.
 *
 * A module is a node of a named tree with a class name, parameters and a forward function. A
 * parameter has one owner and one canonical name: the path from the root, such as
 * "model.layers.0.mlp.down_proj.weight". Initial weights are a function of the seed, the canonical
 * name and the global index of each element, so that every layout starts from the same model.
 *
 * Gradients that a backward pass leaves in parameters are partial until nxd_finish_grads:
 * those of norms under sequence parallelism, of replicated key and value heads, and of all
 * parameters under data parallelism still lack the other ranks' contributions. */
#ifndef NXD_MODULE_H
#define NXD_MODULE_H

#include "checkpoint.h"
#include "context.h"
#include "tensor.h"
#include "weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Node of a model. */
typedef struct nxd_module nxd_module_t;

/** Parameter of a module, or rather this rank's shard of it. */
typedef struct nxd_parameter nxd_parameter_t;

/** Forward function of a module written by the caller.
 *
 *  @param inputs   num_inputs borrowed tensors; a NULL stands for an input that was left out.
 *  @param outputs  to be filled with num_outputs new handles, which the library takes over, also
 *                  those filled before the function fails. */
typedef nxd_status_t (*nxd_forward_fn)(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                       size_t num_inputs, nxd_tensor_t** outputs,
                                       size_t num_outputs, void* user_data);

/** [local] Makes a module with the caller's forward function.
 *
 *  @param class_name  such as "MyBlock"; copied.
 *  @param forward     called by nxd_module_forward; NULL for a mere container.
 *  @param destroy     called with user_data when the module is gone; may be NULL. On failure it is
 *                     not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_create(nxd_context_t* ctx, const char* class_name,
                                       nxd_forward_fn forward, void* user_data,
                                       nxd_destroy_fn destroy, nxd_module_t** out_module);

/** [local] Makes a module that calls its children in order, as torch.nn.Sequential: the first gets
 *  the inputs, each other the one output of the child before it, and the last gives the outputs.
 *
 *  nxd_pp_create cuts it between its children.
 *  @param children  num_children modules, which become "0", "1" and so on; NULL when there are
 *                   none. nxd_module_add_child adds more behind them.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL among the children; one of another context). A forward
 *          without children is INVALID_STATE.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_create_sequential(nxd_context_t* ctx, nxd_module_t* const* children,
                                                  size_t num_children, nxd_module_t** out_module);

/** [local] Releases a handle; a module lives as long as a handle or a parent refers to it.
 *  @since 0.1 */
NXD_API void nxd_module_destroy(nxd_module_t* module);

/** [local] Adds a child; the parent keeps it alive.
 *
 *  @param name   no dots, not empty, not taken by another child or parameter.
 *  @return NXD_OK; INVALID_ARGUMENT (name taken, other context, or a cycle; a parent that is of a
 *          TorchScript file, which says what it has).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_add_child(nxd_module_t* parent, const char* name,
                                          nxd_module_t* child);

/** How a parameter of the caller's is sharded and initialised. */
typedef struct nxd_parameter_options {
  size_t struct_size;
  nxd_dtype_t dtype;         /**< F32 (0), F64 or BF16 */
  int32_t has_shard_dim;     /**< 1: shard_dim is split over tensor-parallel ranks; 0: replicated */
  int32_t sequence_parallel; /**< 1: its gradient is partial per tensor-parallel rank and summed */
  nxd_init_t init;           /**< DEFAULT: zeros */
  double init_a;
  double init_b;
  nxd_device_t device; /**< META: without values until nxd_move_model_to_device or nxd_pp_create */
  int32_t shard_dim;
} nxd_parameter_options_t;

#define NXD_PARAMETER_OPTIONS_INIT                                                    \
  {                                                                                   \
    sizeof(nxd_parameter_options_t), NXD_DTYPE_F32, 0, 0, NXD_INIT_DEFAULT, 0.0, 0.0, \
        NXD_DEVICE_CPU, 0                                                             \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_options_init(nxd_parameter_options_t* options, size_t size);

/** [local] Adds a parameter to a module.
 *
 *  @param global_shape  sizes of the whole parameter; a split dimension must divide.
 *  @param[out] out_parameter  borrowed from the module; may be NULL.
 *  @return as nxd_module_add_child; INVALID_ARGUMENT too for a shape or options out of range;
 *          INVALID_STATE (has_shard_dim or sequence_parallel without nxd_init_model_parallel);
 *          UNSUPPORTED (NXD_DEVICE_NEURON; context- or expert-parallel ranks).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_add_parameter(nxd_module_t* module, const char* name,
                                              const int64_t* global_shape, int32_t ndim,
                                              const nxd_parameter_options_t* options,
                                              nxd_parameter_t** out_parameter);

/** [local] Adds a buffer to a module: a tensor that no gradient reaches, such as a running mean,
 *  and of which every rank has the whole. It is cast and moved with the module; on a way to the
 *  meta device it keeps its values.
 *
 *  @param module    of nxd_module_create.
 *  @param name      as of nxd_module_add_child, among children, parameters and buffers.
 *  @param tensor    any dtype; shared with the module, until that is cast or moved.
 *  @param is_saved  1: files of parameters and snapshots have it under its path; 0: not.
 *  @return NXD_OK; INVALID_ARGUMENT (name taken; a module that cannot have buffers; a tensor that
 *          requires a gradient or is on the meta device).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_add_buffer(nxd_module_t* module, const char* name,
                                           nxd_tensor_t* tensor, int32_t is_saved);

/** [local] Number of buffers of the tree.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_buffer_count(nxd_module_t* root, size_t* out_count);

/** [local] Path of a buffer from this root, by index, in a fixed order.
 *  @param buf  room for cap bytes; may be NULL when cap is 0.
 *  @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
 *                          cap other than 0 is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_buffer_name(nxd_module_t* root, size_t index, char* buf,
                                                size_t cap, size_t* out_needed);

/** [local] The tensor of a buffer, by its path from this root. The caller destroys the handle.
 *  @return NXD_OK; INVALID_ARGUMENT (no such buffer; near names are in the message).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_share_buffer(nxd_module_t* root, const char* name,
                                             nxd_tensor_t** out_tensor);

/** [local] Makes a parameter of one module stand for another's as well; the first is the owner,
 *  and the second name leads to it, with all names that were tied to the second. So do handles
 *  that were lent on the second's parameter before, and on its tensor. Initial values and files
 *  have the owner's name, wherever it stands in the tree.
 *
 *  @param owner_path   from root, such as "embed.weight".
 *  @param alias_path   such as "head.weight"; same global shape and sharding.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (an optimizer or a ddp has the second, or
 *          nxd_pp_create has cut the model).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_tie(nxd_module_t* root, const char* owner_path,
                                    const char* alias_path);

/** [collective: the groups of its layers] Runs the module.
 *
 *  @param inputs   num_inputs borrowed tensors; NULL where an optional input is left out.
 *  @param outputs  room for num_outputs handles, which the caller destroys.
 *  @return NXD_OK; INVALID_ARGUMENT (number, shape, dtype or device of the inputs); TIMEOUT;
 *          PEER_LOST; INVALID_STATE (parameters PARTIAL or without values); a callback's status.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_forward(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                        size_t num_inputs, nxd_tensor_t** outputs,
                                        size_t num_outputs);

/** One recorded forward pass of a module, for frameworks with their own differentiation. */
typedef struct nxd_tape nxd_tape_t;

/** [collective: the groups of its layers] Runs the module and keeps what its backward needs.
 *
 *  Inputs of a float dtype are differentiated; what was recorded of them before is not.
 *  @param[out] out_tape  the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_forward_tape(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                             size_t num_inputs, nxd_tensor_t** outputs,
                                             size_t num_outputs, nxd_tape_t** out_tape);

/** [collective: the groups of its layers] Vector-Jacobian product: adds to the parameters'
 *  gradients and gives those of the inputs.
 *
 *  Gradients of replicated outputs are replicated, not partial; so are those given back.
 *  @param grad_outputs  one per output, of its shape; NULL: zero.
 *  @param[out] out_grad_inputs  room for one per input, which the caller destroys; NULL where an
 *                               input has no gradient.
 *  @return NXD_OK; INVALID_ARGUMENT (the tape can be used again on a rank that rejects its own
 *          arguments); INVALID_STATE (the tape was used already); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tape_backward(nxd_tape_t* tape, nxd_tensor_t* const* grad_outputs,
                                       size_t num_outputs, nxd_tensor_t** out_grad_inputs,
                                       size_t num_inputs);

/** [local] Releases the tape and what it kept.
 *  @since 0.1 */
NXD_API void nxd_tape_destroy(nxd_tape_t* tape);

/** [local] Class name of the module, such as "ColumnParallelLinear"; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_class_name(nxd_module_t* module, const char** out_name);

/** [local] A module below this one by its dotted path; "" is the module itself. Borrowed.
 *  @return NXD_OK; INVALID_ARGUMENT (no such module; near names are in the message).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_find_module(nxd_module_t* root, const char* path,
                                            nxd_module_t** out_module);

/** [local] Number of direct children.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_child_count(nxd_module_t* module, size_t* out_count);

/** [local] A direct child and its name, in order of addition; both borrowed, either may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_child(nxd_module_t* module, size_t index,
                                          nxd_module_t** out_child, const char** out_name);

/** [local] Switches the module and all below it between training (1) and evaluation (0): dropout.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_set_training(nxd_module_t* module, int32_t training);

/** [local] Draws all parameters of the tree anew, with canonical names that start at this module.
 *
 *  Built-in layers are initialised when they are made, under the name their options give; a model
 *  put together from them is initialised by one call on its root.
 *  @param seed  the same on all ranks.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_initialize(nxd_module_t* root, uint64_t seed);

/** A caller's initial values of a parameter, by the places of its elements: values[i] becomes that
 *  of element first + i of the undivided tensor, counted in row-major order, for i below count.
 *
 *  A rank asks for the elements that it has, in pieces of any size. A function of the name, the
 *  shape and the place alone gives each layout of ranks the same model. values come as zeros, and
 *  are rounded to F32 and then to the parameter's dtype, but for F64. A finite value beyond the
 *  range of that dtype is INVALID_ARGUMENT, and names the parameter and the element. */
typedef nxd_status_t (*nxd_initializer_fn)(const char* name, const int64_t* global_shape,
                                           size_t ndim, int64_t first, double* values, size_t count,
                                           void* user_data);

/** [local] Has a parameter take its initial values from a function, instead of those of its layer's
 *  options and the seed. It is called whenever they are drawn from now on: by
 *  nxd_module_initialize, and where a parameter on the meta device gets its values, with the
 *  parameter's canonical name.
 *
 *  @param initializer  NULL: the layer's own again. A status other than NXD_OK ends the call that
 *                      draws, and the parameter keeps its values.
 *  @param destroy      called with user_data when the function is replaced or the parameter is
 *                      gone; may be NULL. On failure it is not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_initializer(nxd_parameter_t* parameter,
                                                   nxd_initializer_fn initializer, void* user_data,
                                                   nxd_destroy_fn destroy);

/** [local] The same for all parameters that the tree has now.
 *  @param destroy  called once, when no parameter has the function any more.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_set_initializer(nxd_module_t* root, nxd_initializer_fn initializer,
                                                void* user_data, nxd_destroy_fn destroy);

/** [local] Turns deferred initialisation on this thread on or off. While it is on, modules are made
 *  on the meta device whatever their options say: their parameters have shapes and no memory.
 *
 *  nxd_move_model_to_device gives parameters their values; nxd_pp_create and loading do so on the
 *  device of their options, or on the CPU where that is NXD_DEVICE_META. Before that, a forward on
 *  tensors with values, a ddp, a step, saving and gathering are errors that name the parameter.
 *  nxd_model_from_torchscript has the values of its file all the same; nxd_model_from_pretrained is
 *  INVALID_ARGUMENT.
 *  @param deferred           0 or 1; 0 at first.
 *  @param[out] out_previous  setting before the call, to be set again at the end of a nested
 *                            region; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT (another number; the setting and out_previous stay as they
 *          are).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_deferred_init(int32_t deferred, int32_t* out_previous);

/** [local] Moves all parameters to a device, in place; they keep their attributes, hooks and
 *  handles.
 *
 *  To the CPU or XLA: those on the meta device get the initial values of their names and seed, as
 *  if they had been made on the CPU; others keep theirs, and their gradients. To the meta device:
 *  values and gradients are forgotten, and their memory is free. A backward pass to a parameter
 *  that was moved since its forward is INVALID_STATE.
 *  @return NXD_OK; UNSUPPORTED (NXD_DEVICE_NEURON; buffers or attributes with elements in common
 *          that would have none any more); INVALID_STATE (a ddp holds the values or gradients of a
 *          parameter that is on another device; none is changed).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_move_model_to_device(nxd_module_t* root, nxd_device_t device);

/** [local] Casts parameters and buffers of floats, in place; attributes, hooks and handles stay.
 *
 *  Values and gradients are rounded to nearest even, F64 to BF16 by way of F32 as in PyTorch, or
 *  widened. Parameters on the meta device stay there, and get initial values of that dtype later.
 *  Optimizers, ddps and pipelines are made after the cast: those that are there know the
 *  parameters as they were. A backward pass to a parameter that was cast since its forward is
 *  INVALID_STATE.
 *  @param dtype  F32, F64 or BF16.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (buffers or attributes of two dtypes with elements
 *          in common); INVALID_STATE (a ddp holds the values or gradients of a parameter of another
 *          dtype, or nxd_pp_create has cut its model; none is changed).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_cast(nxd_module_t* root, nxd_dtype_t dtype);

/** [local] Number of parameters of the tree; tied ones count once.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_parameter_count(nxd_module_t* root, size_t* out_count);

/** [local] A parameter of the tree by index, in a fixed order, and its name from this root.
 *
 *  @param[out] out_parameter  borrowed from its module; may be NULL.
 *  @param[out] out_name       borrowed, valid until the tree changes; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_parameter(nxd_module_t* root, size_t index,
                                              nxd_parameter_t** out_parameter,
                                              const char** out_name);

/** [local] A parameter of the tree by its name from this root, tied names included.
 *  @return NXD_OK; INVALID_ARGUMENT (no such parameter; near names are in the message).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_find_parameter(nxd_module_t* root, const char* name,
                                               nxd_parameter_t** out_parameter);

/** [local] This rank's shard; borrowed from the parameter.
 *
 *  Its gradient is read and set by nxd_tensor_share_grad and nxd_tensor_set_grad, on this handle.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_tensor(nxd_parameter_t* parameter,
                                              nxd_tensor_t** out_tensor);

/** [local] Shape of the whole parameter; as nxd_tensor_get_shape.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_global_shape(nxd_parameter_t* parameter, int64_t* shape,
                                                    size_t cap, size_t* out_ndim);

/** [local] Gives the part of the full parameter that this rank has.
 *
 *  @param[out] out_dim      split dimension, or -1 for a replicated parameter.
 *  @param begins  room for cap ranges of that dimension, in local order; may be NULL if cap is 0.
 *  @param ends    likewise. Indices from the whole's size on are padding.
 *  @param[out] out_ranges   number of ranges.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_shard(nxd_parameter_t* parameter, int32_t* out_dim,
                                             int64_t* begins, int64_t* ends, size_t cap,
                                             size_t* out_ranges);

/** [local] Overwrites this rank's shard with its part of the full value.
 *  @param full  tensor of the global shape with values, any float dtype.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_full(nxd_parameter_t* parameter, nxd_tensor_t* full);

/** [collective: tensor-parallel group] The full value of a parameter, on the CPU.
 *  @param[out] out_full  the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_gather_full(nxd_parameter_t* parameter, nxd_tensor_t** out_full);

/** [collective: tensor-parallel group] The full gradient of a parameter, as far as it is finished,
 *  on the CPU.
 *  @param[out] out_full  the caller destroys it; NULL with NXD_OK when there is no gradient.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_gather_full_grad(nxd_parameter_t* parameter,
                                                    nxd_tensor_t** out_full);

/** [local] Freezes (0) or unfreezes (1) a parameter.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_trainable(nxd_parameter_t* parameter, int32_t trainable);

/** Called when a backward pass has added to the parameter's gradient. */
typedef nxd_status_t (*nxd_grad_hook_fn)(nxd_parameter_t* parameter, void* user_data);

/** [local] Sets the parameter's gradient hook; NULL removes it.
 *  @param destroy  called with user_data when the hook is replaced or the parameter is gone, at
 *                  once without a hook; may be NULL. On failure it is not called.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (a frozen parameter without a hook).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_grad_hook(nxd_parameter_t* parameter, nxd_grad_hook_fn hook,
                                                 void* user_data, nxd_destroy_fn destroy);

/** [local] Forgets the gradients of all parameters of the tree.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_zero_grad(nxd_module_t* root);

/** Names and tensors that a load did not match. */
typedef struct nxd_load_report nxd_load_report_t;

/** Kinds of mismatch. */
typedef int32_t nxd_mismatch_t;
enum {
  NXD_MISMATCH_INVALID = -1,
  NXD_MISMATCH_MISSING = 0,    /**< a parameter that the file lacks */
  NXD_MISMATCH_UNEXPECTED = 1, /**< a tensor that the model lacks */
  NXD_MISMATCH_SHAPE = 2       /**< a tensor of another shape than the parameter's */
};

/** [local] Number of mismatches of a kind.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_load_report_get_count(nxd_load_report_t* report, nxd_mismatch_t kind,
                                               size_t* out_count);

/** [local] Name of a mismatch; borrowed from the report.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_load_report_get_name(nxd_load_report_t* report, nxd_mismatch_t kind,
                                              size_t index, const char** out_name);

/** [local] Releases the report.
 *  @since 0.1 */
NXD_API void nxd_load_report_destroy(nxd_load_report_t* report);

/** [local] Reads parameters from safetensors; each rank reads its own shards only.
 *
 *  @param path    a .safetensors file, or a directory with model.safetensors or
 *                 model.safetensors.index.json; with both the file is read, as in transformers.
 *  @param strict  1: any mismatch is INVALID_ARGUMENT and no parameter is changed.
 *  @param[out] out_report  also given when strict fails; the caller destroys it; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (no float dtype for a parameter, or another dtype
 *          than an integer buffer's; none is changed); IO; CORRUPT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_load_safetensors(nxd_module_t* root, const char* path,
                                                 int32_t strict, nxd_load_report_t** out_report);

/** [collective: tensor- and pipeline-parallel groups] Writes the whole parameters, those of all
 *  stages, as one safetensors file, on the first rank of data-parallel copy 0; crash-safe. Ranks of
 *  other copies run what was recorded, do not wait for it, and do not hear how it ended.
 *
 *  @param path  file; replaced when complete. An index beside a model.safetensors, which is that of
 *               an older save, is removed then.
 *  @return the same on all ranks of a copy: NXD_OK; INVALID_ARGUMENT (path NULL, or parameters on
 *          the meta device or left to other ranks by nxd_pp_create); INVALID_STATE (parameters are
 *          PARTIAL, or of another layout than the context has now); IO, on copy 0 alone.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_save_safetensors(nxd_module_t* root, const char* path);

/** [collective: world] Takes a snapshot of the parameters for a checkpoint. The
 *  file that nxd_module_save_safetensors would write now is written when the checkpoint is
 *  published, and the parameters may change meanwhile.
 *
 *  The ranks of data-parallel copy 0 keep a copy of their shards until the checkpoint is published
 *  or destroyed; while it is written, a rank has one whole tensor more.
 *  @param name  of the file, as for nxd_checkpoint_get_path; the same on all ranks, not that of
 *               another snapshot of the checkpoint, and without .shares.json at its end.
 *  @return NXD_OK; INVALID_ARGUMENT (also for parameters on the meta device, and a module of
 *          another context); INVALID_STATE (parameters are PARTIAL; the checkpoint is published, or
 *          was opened); OUT_OF_MEMORY; TIMEOUT; PEER_LOST. All ranks fail when one does, but for
 *          checkpoint NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_snapshot(nxd_module_t* root, nxd_checkpoint_t* checkpoint,
                                         const char* name);

#ifdef __cplusplus
}
#endif

#endif /* NXD_MODULE_H */
