# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/work.h."""

from __future__ import annotations

NAMES = """
typedef struct nxd_work nxd_work_t;
"""

TYPES = """
typedef void (*nxd_work_callback_t)(void* user_data, nxd_status_t status);
"""

FUNCTIONS = """
nxd_status_t nxd_all_reduce_async(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce, nxd_work_t** out_work);
nxd_status_t nxd_all_gather_async(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype, nxd_work_t** out_work);
nxd_status_t nxd_reduce_scatter_async(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce, nxd_work_t** out_work);
nxd_status_t nxd_broadcast_async(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype, int32_t root, nxd_work_t** out_work);
nxd_status_t nxd_all_to_all_async(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype, nxd_work_t** out_work);
nxd_status_t nxd_send_async(nxd_group_t* group, const void* buffer, size_t count, nxd_dtype_t dtype, int32_t to, int32_t tag, nxd_work_t** out_work);
nxd_status_t nxd_receive_async(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype, int32_t from, int32_t tag, nxd_work_t** out_work);
nxd_status_t nxd_barrier_async(nxd_group_t* group, nxd_work_t** out_work);
nxd_status_t nxd_group_reject(nxd_group_t* group, const char* operation, int32_t peer, int32_t tag, const char* reason);
nxd_status_t nxd_group_reject_async(nxd_group_t* group, const char* operation, int32_t peer, int32_t tag, const char* reason, nxd_work_t** out_work);
nxd_status_t nxd_work_test(nxd_work_t* work, int32_t* out_done);
nxd_status_t nxd_work_wait(nxd_work_t* work, int64_t timeout_ms);
nxd_status_t nxd_work_set_callback(nxd_work_t* work, nxd_work_callback_t callback, void* user_data);
nxd_status_t nxd_work_get_descriptor(nxd_work_t* work, int32_t* out_descriptor);
nxd_status_t nxd_work_cancel(nxd_work_t* work);
nxd_status_t nxd_work_get_error_info(nxd_work_t* work, nxd_error_info_t* out_info);
void nxd_work_destroy(nxd_work_t* work);
"""
