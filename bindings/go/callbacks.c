#include "callbacks.h"

#include "_cgo_export.h"

#define HANDLE ((uintptr_t)user_data)
#define PLAIN(pointer) ((void*)(uintptr_t)(pointer))

void nxdgo_destroy(void* user_data) { nxdgoDestroy(HANDLE); }

void nxdgo_log(nxd_log_level_t level, const char* message, void* user_data) {
  nxdgoLog(level, PLAIN(message), HANDLE);
}

nxd_status_t nxdgo_interrupt(void* user_data) { return nxdgoInterrupt(HANDLE); }

nxd_status_t nxdgo_store_set(const char* key, const uint8_t* value, size_t size, void* user_data) {
  return nxdgoStoreSet(PLAIN(key), PLAIN(value), size, HANDLE);
}

nxd_status_t nxdgo_store_get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                             int32_t* out_found, void* user_data) {
  return nxdgoStoreGet(PLAIN(key), buf, cap, out_size, out_found, HANDLE);
}

nxd_status_t nxdgo_store_add(const char* key, int64_t amount, int64_t* out_value, void* user_data) {
  return nxdgoStoreAdd(PLAIN(key), amount, out_value, HANDLE);
}

nxd_status_t nxdgo_update(const nxd_update_t* update, void* user_data) {
  return nxdgoUpdate(PLAIN(update), HANDLE);
}

nxd_status_t nxdgo_stage_forward(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                 DLTensor* const* outputs, double* out_loss, void* user_data) {
  return nxdgoStageForward(PLAIN(call), PLAIN(inputs), PLAIN(outputs), out_loss, HANDLE);
}

nxd_status_t nxdgo_stage_backward(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                  DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                                  void* user_data) {
  return nxdgoStageBackward(PLAIN(call), PLAIN(inputs), PLAIN(grad_outputs), PLAIN(grad_inputs), 1,
                            1, HANDLE);
}

nxd_status_t nxdgo_stage_backward_input(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                        DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                                        void* user_data) {
  return nxdgoStageBackward(PLAIN(call), PLAIN(inputs), PLAIN(grad_outputs), PLAIN(grad_inputs), 1,
                            0, HANDLE);
}

nxd_status_t nxdgo_stage_backward_weight(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                         DLTensor* const* grad_outputs, void* user_data) {
  return nxdgoStageBackward(PLAIN(call), PLAIN(inputs), PLAIN(grad_outputs), NULL, 0, 1, HANDLE);
}
