# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/group.h."""

from __future__ import annotations

from enum import IntEnum

NAMES = """
typedef int32_t nxd_reduce_t;
typedef struct nxd_payloads nxd_payloads_t;
"""

FUNCTIONS = """
nxd_status_t nxd_group_create(nxd_context_t* ctx, const int32_t* ranks, size_t num_ranks, const char* name, nxd_group_t** out_group);
void nxd_group_destroy(nxd_group_t* group);
nxd_status_t nxd_group_abort(nxd_group_t* group);
nxd_status_t nxd_group_get_size(nxd_group_t* group, int32_t* out_size);
nxd_status_t nxd_group_get_rank(nxd_group_t* group, int32_t* out_rank);
nxd_status_t nxd_group_get_ranks(nxd_group_t* group, int32_t* ranks, size_t cap, size_t* out_size);
nxd_status_t nxd_group_set_timeout(nxd_group_t* group, int64_t timeout_ms);
nxd_status_t nxd_group_get_transport(nxd_group_t* group, nxd_transport_t* out_transport);
nxd_status_t nxd_group_set_next_key(nxd_group_t* group, uint64_t key);
nxd_status_t nxd_all_reduce(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);
nxd_status_t nxd_all_gather(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype);
nxd_status_t nxd_reduce_scatter(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);
nxd_status_t nxd_broadcast(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype, int32_t root);
nxd_status_t nxd_all_to_all(nxd_group_t* group, const void* send, void* receive, size_t count, nxd_dtype_t dtype);
nxd_status_t nxd_send(nxd_group_t* group, const void* buffer, size_t count, nxd_dtype_t dtype, int32_t to, int32_t tag);
nxd_status_t nxd_receive(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype, int32_t from, int32_t tag);
nxd_status_t nxd_barrier(nxd_group_t* group);
nxd_status_t nxd_group_rendezvous(nxd_group_t* group, const char* tag, const void* payload, size_t size, nxd_payloads_t** out_payloads);
nxd_status_t nxd_payloads_get(nxd_payloads_t* payloads, int32_t rank, const void** out_data, size_t* out_size);
void nxd_payloads_destroy(nxd_payloads_t* payloads);
"""


class Reduce(IntEnum):
    """Reductions."""

    INVALID = -1
    SUM = 0
    # sum divided by the group's size; floats only
    AVG = 1
    # NaN wins
    MAX = 2
    # NaN wins
    MIN = 3
    PROD = 4
