#include "callbacks.h"

#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

#define HANDLE ((uintptr_t)user_data)
#define PLAIN(pointer) ((void*)(uintptr_t)(pointer))

void nxdgo_engine_destroy(void* user_data) { nxdgoEngineDestroy(HANDLE); }

nxd_status_t nxdgo_module_forward(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                  void* user_data) {
  return nxdgoModuleForward(self, PLAIN(inputs), num_inputs, PLAIN(outputs), num_outputs, HANDLE);
}

nxd_status_t nxdgo_function_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                    size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                    void* user_data) {
  return nxdgoFunctionForward(call, PLAIN(inputs), num_inputs, PLAIN(outputs), num_outputs, HANDLE);
}

nxd_status_t nxdgo_function_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                     size_t num_outputs, nxd_tensor_t** grad_inputs,
                                     size_t num_inputs, void* user_data) {
  return nxdgoFunctionBackward(call, PLAIN(grad_outputs), num_outputs, PLAIN(grad_inputs),
                               num_inputs, HANDLE);
}

nxd_status_t nxdgo_function_shape(nxd_tensor_t* const* inputs, size_t num_inputs,
                                  nxd_tensor_t** outputs, size_t num_outputs, void* user_data) {
  return nxdgoFunctionShape(PLAIN(inputs), num_inputs, PLAIN(outputs), num_outputs, HANDLE);
}

nxd_status_t nxdgo_grad_hook(nxd_parameter_t* parameter, void* user_data) {
  return nxdgoGradHook(parameter, HANDLE);
}

nxd_status_t nxdgo_pad_hook(nxd_module_t* module, int64_t num_heads, int64_t num_padded_heads,
                            void* user_data) {
  return nxdgoPadHook(module, num_heads, num_padded_heads, HANDLE);
}

nxd_status_t nxdgo_param_init(nxd_parameter_t* parameter, const char* name, nxd_tensor_t* tensor,
                              void* user_data) {
  return nxdgoParamInit(parameter, PLAIN(name), tensor, HANDLE);
}

nxd_status_t nxdgo_initializer(const char* name, const int64_t* global_shape, size_t ndim,
                               int64_t first, double* values, size_t count, void* user_data) {
  return nxdgoInitializer(PLAIN(name), PLAIN(global_shape), ndim, first, values, count, HANDLE);
}

nxd_status_t nxdgo_step_closure(void* user_data) { return nxdgoStepClosure(HANDLE); }

nxd_status_t nxdgo_read_batch(nxd_tensor_t** outputs, size_t num_outputs, int32_t* out_end,
                              void* user_data) {
  return nxdgoReadBatch(PLAIN(outputs), num_outputs, out_end, HANDLE);
}

nxd_status_t nxdgo_leaf(nxd_module_t* module, const char* path, int32_t* is_leaf, void* user_data) {
  return nxdgoLeaf(module, PLAIN(path), is_leaf, HANDLE);
}

typedef struct {
  DLManagedTensor managed;
  void* object;
  void (*release)(void*);
  int64_t shape[];
} managed_t;

void nxdgo_release(void* release, void* object) { ((void (*)(void*))release)(object); }

void nxdgo_managed_delete(DLManagedTensor* managed) {
  managed_t* m = (managed_t*)managed;
  m->release(m->object);
  free(m);
}

DLManagedTensor* nxdgo_managed(void* data, DLDataType dtype, const int64_t* shape, int32_t ndim,
                               void* object, void* release) {
  const size_t size = (size_t)ndim * sizeof *shape;
  managed_t* m = calloc(1, sizeof *m + size);
  if (!m) return NULL;
  if (size) memcpy(m->shape, shape, size);
  m->managed.dl_tensor.data = data;
  m->managed.dl_tensor.device.device_type = kDLCPU;
  m->managed.dl_tensor.ndim = ndim;
  m->managed.dl_tensor.dtype = dtype;
  m->managed.dl_tensor.shape = m->shape;
  m->managed.deleter = nxdgo_managed_delete;
  m->object = object;
  m->release = (void (*)(void*))release;
  return &m->managed;
}
