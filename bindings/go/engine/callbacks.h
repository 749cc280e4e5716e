/* The callbacks of libnxd, as C functions that call Go. user_data is a handle of runtime/cgo. */
#ifndef NXDGO_ENGINE_CALLBACKS_H
#define NXDGO_ENGINE_CALLBACKS_H

#include "nxd.h"

void nxdgo_engine_destroy(void* user_data);
nxd_status_t nxdgo_module_forward(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                  void* user_data);
nxd_status_t nxdgo_function_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                    size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                    void* user_data);
nxd_status_t nxdgo_function_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                     size_t num_outputs, nxd_tensor_t** grad_inputs,
                                     size_t num_inputs, void* user_data);
nxd_status_t nxdgo_function_shape(nxd_tensor_t* const* inputs, size_t num_inputs,
                                  nxd_tensor_t** outputs, size_t num_outputs, void* user_data);
nxd_status_t nxdgo_grad_hook(nxd_parameter_t* parameter, void* user_data);
nxd_status_t nxdgo_pad_hook(nxd_module_t* module, int64_t num_heads, int64_t num_padded_heads,
                            void* user_data);
nxd_status_t nxdgo_param_init(nxd_parameter_t* parameter, const char* name, nxd_tensor_t* tensor,
                              void* user_data);
nxd_status_t nxdgo_initializer(const char* name, const int64_t* global_shape, size_t ndim,
                               int64_t first, double* values, size_t count, void* user_data);
nxd_status_t nxdgo_step_closure(void* user_data);
nxd_status_t nxdgo_read_batch(nxd_tensor_t** outputs, size_t num_outputs, int32_t* out_end,
                              void* user_data);
nxd_status_t nxdgo_leaf(nxd_module_t* module, const char* path, int32_t* is_leaf, void* user_data);

/* A managed tensor over the program's memory, whose end calls release(object); NULL without memory.
 */
DLManagedTensor* nxdgo_managed(void* data, DLDataType dtype, const int64_t* shape, int32_t ndim,
                               void* object, void* release);
void nxdgo_managed_delete(DLManagedTensor* managed);
void nxdgo_release(void* release, void* object);

#endif /* NXDGO_ENGINE_CALLBACKS_H */
