/** @file
 * Automatic differentiation.
 *
 * Backward passes run on the thread that asks for them. Where layers communicate, every rank of
 * their group runs the same backward pass. */
#ifndef NXD_AUTOGRAD_H
#define NXD_AUTOGRAD_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** [local] Tells whether operations on the tensor are recorded for differentiation.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_requires_grad(nxd_tensor_t* tensor, int32_t* out_requires);

/** [local] Makes a leaf tensor require a gradient, or not.
 *  @return NXD_OK; INVALID_ARGUMENT (integer dtype); INVALID_STATE (not a leaf).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_set_requires_grad(nxd_tensor_t* tensor, int32_t requires_grad);

/** [local] Gradient accumulated in a leaf. A BF16 parameter's is F32 where a ddp keeps it so
 *  (fp32_grads).
 *  @param[out] out_grad  the caller destroys it; NULL with NXD_OK when there is none yet.
 *  @return NXD_OK; INVALID_STATE (not a leaf).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_share_grad(nxd_tensor_t* tensor, nxd_tensor_t** out_grad);

/** [local] Replaces the gradient of a leaf, wherever it is kept; NULL clears it.
 *  @param grad  same shape and dtype as the tensor; shared, not copied. It may not require a
 *               gradient itself.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (not a leaf).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_set_grad(nxd_tensor_t* tensor, nxd_tensor_t* grad);

/** [local] A handle on the same memory, outside of the recorded graph.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_detach(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor);

/** [local] Turns recording on this thread on or off.
 *  @param[out] out_previous  setting before the call; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT (another number than 0 or 1; the setting stays as it is, and
 *          out_previous is 0).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_grad_enabled(int32_t enabled, int32_t* out_previous);

/** [local] Turns automatic casts on this thread on or off: parameters and optimizers stay in F32,
 *  while products of matrices run in 16 bits.
 *
 *  While on, arguments of dtype F32, BF16 and F16 are cast before an operator runs that one of
 *  these lists names, those of PyTorch's torch.autocast on accelerators (docs/training.md has all):
 *   - in dtype: products of matrices, convolutions, attention;
 *   - in F32: norms, softmax, exponentials, logarithms, powers, sums, losses;
 *   - in the widest dtype among the arguments: operators that join or mix several, such as cat and
 *     addcmul.
 *  Tensors of NXD_DEVICE_XLA have PyTorch/XLA's lists, which are shorter.
 *
 *  Other operators take what they are given. F64 and integers are never cast, nor are the arguments
 *  of operators that write to one of them. Casts are recorded: gradients have the dtypes of the
 *  parameters.
 *
 *  It applies to nxd_op_run, nxd_op_call and to built-in layers, which then take inputs of F32 and
 *  of BF16. Linear layers, attention, gated MLPs and language heads compute in dtype and give it.
 *  Norms, their sums with residuals, and losses are F32. An embedding has the dtype of its table.
 *
 *  A backward pass runs without it, in the dtypes of its forward; so do other threads.
 *
 *  @param dtype  NXD_DTYPE_BF16: on; NXD_DTYPE_INVALID: off, as it is at first.
 *  @param[out] out_previous  setting before the call, to be set again at the end of a nested
 *                            region; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT (another dtype; the setting and out_previous stay as they are).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_autocast(nxd_dtype_t dtype, nxd_dtype_t* out_previous);

/** [collective: the groups of the layers in the graph] Accumulates gradients into the leaves of
 *  the graph. Each leaf has its gradient in memory of its own, unless nxd_tensor_set_grad gave it
 *  one to share: it has no part in grads, nor in what a custom function returned. Peers are not
 *  told of outputs and grads that one rank alone has wrong: nxd_group_reject does.
 *
 *  @param outputs   n tensors; recorded, or leaves that require a gradient.
 *  @param grads     n gradients of their shapes; NULL, or NULL for a scalar: 1.
 *  @param retain_graph  1: the graph may be differentiated again.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (differentiated before without retain_graph, or
 *          a tensor the graph needs was overwritten); UNSUPPORTED (a custom function without
 *          backward); what a custom function or a collective in the graph returned.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_backward(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads,
                                  size_t num_outputs, int32_t retain_graph);

/** [collective: the groups of the layers in the graph] Gradients of outputs with respect to some
 *  inputs, each in memory of its own; no leaf's gradient is touched. They are constants, through
 *  which nothing is differentiated. NULL stands for an input that the outputs do not depend on.
 *
 *  @param[out] out_grads  room for num_inputs handles, which the caller destroys.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_grad(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads,
                              size_t num_outputs, nxd_tensor_t* const* inputs, size_t num_inputs,
                              int32_t retain_graph, nxd_tensor_t** out_grads);

/** A differentiable function written by the caller. */
typedef struct nxd_function nxd_function_t;

/** One application of a custom function; valid inside its callbacks. */
typedef struct nxd_function_call nxd_function_call_t;

/** Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph. Outputs
 *  are new handles that the library takes over, also those filled before the callback fails; a
 *  borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is recorded. Tensors
 *  that backward gives may be those that it was given or that were saved: they are not written to.
 */
typedef struct nxd_function_options {
  size_t struct_size;
  const char* name;   /**< stable and unique, such as "mylib::swish" */
  size_t num_outputs; /**< 0: 1 */
  /** Fills num_outputs outputs. */
  nxd_status_t (*forward)(nxd_function_call_t* call, nxd_tensor_t* const* inputs, size_t num_inputs,
                          nxd_tensor_t** outputs, size_t num_outputs, void* user_data);
  /** Fills the gradient of each input from those of the outputs; NULL for an input that has none.
   *  A NULL in grad_outputs means zero. May be NULL: then the function is not differentiable. */
  nxd_status_t (*backward)(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                           size_t num_outputs, nxd_tensor_t** grad_inputs, size_t num_inputs,
                           void* user_data);
  /** Fills outputs of the right shape and dtype from inputs on the meta device. May be NULL: then
   *  the function cannot be traced. */
  nxd_status_t (*shape)(nxd_tensor_t* const* inputs, size_t num_inputs, nxd_tensor_t** outputs,
                        size_t num_outputs, void* user_data);
  void* user_data;
  nxd_destroy_fn destroy; /**< called when the function and its last recorded graph are gone */
} nxd_function_options_t;

#define NXD_FUNCTION_OPTIONS_INIT \
  { sizeof(nxd_function_options_t), NULL, 0, NULL, NULL, NULL, NULL, NULL }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_options_init(nxd_function_options_t* options, size_t size);

/** [local] Makes a custom function.
 *  @return NXD_OK; INVALID_ARGUMENT (name or forward missing). On failure destroy is not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_create(const nxd_function_options_t* options,
                                         nxd_function_t** out_function);

/** [local] Applies the function; recorded when an input requires a gradient.
 *
 *  @param outputs  room for num_outputs handles, which the caller destroys; num_outputs as created.
 *  @return NXD_OK; INVALID_ARGUMENT; what a callback returned.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_apply(nxd_function_t* function, nxd_tensor_t* const* inputs,
                                        size_t num_inputs, nxd_tensor_t** outputs,
                                        size_t num_outputs);

/** [local] Releases the function; recorded graphs keep what they need.
 *  @since 0.1 */
NXD_API void nxd_function_destroy(nxd_function_t* function);

/** [local] Keeps a tensor from forward for backward.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_call_save(nxd_function_call_t* call, nxd_tensor_t* tensor);

/** [local] A tensor kept by forward, by its order; borrowed for the callback.
 *  @return NXD_OK; INVALID_ARGUMENT (index).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_call_get_saved(nxd_function_call_t* call, size_t index,
                                                 nxd_tensor_t** out_tensor);

/** [local] Tells whether backward needs the gradient of an input.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_call_needs_grad(nxd_function_call_t* call, size_t input_index,
                                                  int32_t* out_needs);

#ifdef __cplusplus
}
#endif

#endif /* NXD_AUTOGRAD_H */
