/* The library's callbacks, as C functions that call Go. user_data is a handle of runtime/cgo. */
#ifndef NXDGO_CALLBACKS_H
#define NXDGO_CALLBACKS_H

#include "nxd.h"

void nxdgo_destroy(void* user_data);
void nxdgo_log(nxd_log_level_t level, const char* message, void* user_data);
nxd_status_t nxdgo_interrupt(void* user_data);
nxd_status_t nxdgo_store_set(const char* key, const uint8_t* value, size_t size, void* user_data);
nxd_status_t nxdgo_store_get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                             int32_t* out_found, void* user_data);
nxd_status_t nxdgo_store_add(const char* key, int64_t amount, int64_t* out_value, void* user_data);
nxd_status_t nxdgo_update(const nxd_update_t* update, void* user_data);
nxd_status_t nxdgo_stage_forward(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                 DLTensor* const* outputs, double* out_loss, void* user_data);
nxd_status_t nxdgo_stage_backward(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                  DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                                  void* user_data);
nxd_status_t nxdgo_stage_backward_input(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                        DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                                        void* user_data);
nxd_status_t nxdgo_stage_backward_weight(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                         DLTensor* const* grad_outputs, void* user_data);

#endif /* NXDGO_CALLBACKS_H */
