# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/context.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypedDict

from nxd._raw.base import Toggle

NAMES = """
typedef int32_t nxd_rendezvous_t;
typedef int32_t nxd_transport_t;
typedef struct nxd_context nxd_context_t;
typedef struct nxd_group nxd_group_t;
typedef struct nxd_context_options nxd_context_options_t;
"""

TYPES = """
typedef nxd_status_t (*nxd_interrupt_fn)(void* user_data);
struct nxd_context_options {
  size_t struct_size;
  nxd_rendezvous_t rendezvous;
  int32_t rank;
  int32_t size;
  int32_t local_rank;
  nxd_store_t* store;
  int64_t timeout_ms;
  const char* interface_name;
  uint64_t seed;
  nxd_toggle_t plain_kernels;
  nxd_transport_t transport;
  const char* host_id;
  nxd_interrupt_fn interrupt;
  void* interrupt_data;
};
"""

FUNCTIONS = """
nxd_status_t nxd_context_options_init(nxd_context_options_t* options, size_t size);
nxd_status_t nxd_context_create(const nxd_context_options_t* options, nxd_context_t** out_ctx);
nxd_status_t nxd_context_finalize(nxd_context_t* ctx);
void nxd_context_destroy(nxd_context_t* ctx);
nxd_status_t nxd_context_abort(nxd_context_t* ctx);
nxd_status_t nxd_context_get_flight_record(nxd_context_t* ctx, char* buf, size_t cap, size_t* out_needed);
nxd_status_t nxd_context_get_rank(nxd_context_t* ctx, int32_t* out_rank);
nxd_status_t nxd_context_get_size(nxd_context_t* ctx, int32_t* out_size);
nxd_status_t nxd_context_get_local_rank(nxd_context_t* ctx, int32_t* out_rank);
nxd_status_t nxd_context_get_world_group(nxd_context_t* ctx, nxd_group_t** out_group);
nxd_status_t nxd_context_set_plain_kernels(nxd_context_t* ctx, int32_t plain);
nxd_status_t nxd_context_get_plain_kernels(nxd_context_t* ctx, int32_t* out_plain);
nxd_status_t nxd_context_set_step(nxd_context_t* ctx, int64_t step, int64_t microbatch);
nxd_status_t nxd_context_get_step(nxd_context_t* ctx, int64_t* out_step, int64_t* out_microbatch);
nxd_status_t nxd_master_print(nxd_context_t* ctx, const char* text);
"""


class Rendezvous(IntEnum):
    """The source of a context's rank, and of the addresses of its peers."""

    INVALID = -1
    ENVIRONMENT = 0
    STORE = 1


class Transport(IntEnum):
    """The means that carries the data of a group."""

    INVALID = -1
    AUTO = 0
    # TCP between all ranks
    GLOO = 1
    # groups that span hosts are rejected
    SHARED_MEMORY = 2
    # shared memory within hosts, Gloo between them
    HIERARCHICAL = 3


class ContextOptions(TypedDict, total=False):
    """Options of nxd_context_create."""

    rendezvous: Rendezvous | str
    # with RENDEZVOUS_STORE: 0..size-1
    rank: int
    # with RENDEZVOUS_STORE: ranks in the world, at least 1
    size: int
    # rank on this host; with RENDEZVOUS_STORE; else the launcher's
    local_rank: int
    # with RENDEZVOUS_STORE: required when size > 1; kept alive
    store: Any
    # bound of every collective; 0: NXD_TIMEOUT_MS or 1800000
    timeout_ms: int
    # network interface or address; NULL: NXD_SOCKET_IFNAME, or loopback when all ranks share one
    # host
    interface_name: str
    # of initial weights and random bits; 0: NXD_SEED or 0
    seed: int
    # every layer through plain ATen operators; default: NXD_PLAIN_KERNELS or off
    plain_kernels: bool | Toggle | None
    # of all groups; AUTO: NXD_TRANSPORT or by topology
    transport: Transport | str
    # ranks that give the same name share memory; NULL: NXD_HOST_ID, or found out
    host_id: str
    # NULL: a blocked call ends by itself or by the timeout
    interrupt: Any
    # must outlive the context
    interrupt_data: Any


FIELDS: dict[str, dict[str, type]] = {
    "nxd_context_options_t": {
        "rendezvous": Rendezvous,
        "plain_kernels": Toggle,
        "transport": Transport,
    },
}
