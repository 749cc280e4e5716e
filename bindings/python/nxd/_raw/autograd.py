# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/autograd.h."""

from __future__ import annotations

from typing import Any, TypedDict

NAMES = """
typedef struct nxd_function nxd_function_t;
typedef struct nxd_function_call nxd_function_call_t;
typedef struct nxd_function_options nxd_function_options_t;
"""

TYPES = """
struct nxd_function_options {
  size_t struct_size;
  const char* name;
  size_t num_outputs;
  nxd_status_t (*forward)(nxd_function_call_t*, nxd_tensor_t* const*, size_t, nxd_tensor_t**, size_t, void*);
  nxd_status_t (*backward)(nxd_function_call_t*, nxd_tensor_t* const*, size_t, nxd_tensor_t**, size_t, void*);
  nxd_status_t (*shape)(nxd_tensor_t* const*, size_t, nxd_tensor_t**, size_t, void*);
  void* user_data;
  nxd_destroy_fn destroy;
};
"""

FUNCTIONS = """
nxd_status_t nxd_tensor_get_requires_grad(nxd_tensor_t* tensor, int32_t* out_requires);
nxd_status_t nxd_tensor_set_requires_grad(nxd_tensor_t* tensor, int32_t requires_grad);
nxd_status_t nxd_tensor_share_grad(nxd_tensor_t* tensor, nxd_tensor_t** out_grad);
nxd_status_t nxd_tensor_set_grad(nxd_tensor_t* tensor, nxd_tensor_t* grad);
nxd_status_t nxd_tensor_detach(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor);
nxd_status_t nxd_set_grad_enabled(int32_t enabled, int32_t* out_previous);
nxd_status_t nxd_set_autocast(nxd_dtype_t dtype, nxd_dtype_t* out_previous);
nxd_status_t nxd_backward(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads, size_t num_outputs, int32_t retain_graph);
nxd_status_t nxd_grad(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads, size_t num_outputs, nxd_tensor_t* const* inputs, size_t num_inputs, int32_t retain_graph, nxd_tensor_t** out_grads);
nxd_status_t nxd_function_options_init(nxd_function_options_t* options, size_t size);
nxd_status_t nxd_function_create(const nxd_function_options_t* options, nxd_function_t** out_function);
nxd_status_t nxd_function_apply(nxd_function_t* function, nxd_tensor_t* const* inputs, size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs);
void nxd_function_destroy(nxd_function_t* function);
nxd_status_t nxd_function_call_save(nxd_function_call_t* call, nxd_tensor_t* tensor);
nxd_status_t nxd_function_call_get_saved(nxd_function_call_t* call, size_t index, nxd_tensor_t** out_tensor);
nxd_status_t nxd_function_call_needs_grad(nxd_function_call_t* call, size_t input_index, int32_t* out_needs);
"""


class FunctionOptions(TypedDict, total=False):
    """Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph.
    Outputs are new handles that the library takes over, also those filled before the callback
    fails; a borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is
    recorded.
    """

    # stable and unique, such as "mylib::swish"
    name: str
    # 0: 1
    num_outputs: int
    forward: Any
    backward: Any
    shape: Any
    user_data: Any
    # called when the function and its last recorded graph are gone
    destroy: Any
