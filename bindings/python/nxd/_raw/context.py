# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/context.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypedDict

from nxd._raw.base import Toggle


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
    # of initial weights and random bits, the same on ranks that share tensors; 0: NXD_SEED or 0
    seed: int
    # every layer through plain ATen operators; default: NXD_PLAIN_KERNELS or off
    plain_kernels: bool | Toggle | None
    # of all groups, the same on all ranks; AUTO: NXD_TRANSPORT or by topology
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
