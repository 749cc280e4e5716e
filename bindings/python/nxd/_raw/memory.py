# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/memory.h."""

from __future__ import annotations

from typing import NamedTuple


class MemoryStats(NamedTuple):
    """Figures of the pool that tensors are drawn from, and of the contexts' arenas."""

    # in live tensors
    bytes_in_use: int
    # held from the system, live or ready for reuse
    bytes_reserved: int
    peak_bytes_in_use: int
    # since the process started
    allocations: int
    # of these, the ones that had to ask the system
    system_allocations: int
    # of nxd_memory_set_cap; 0: none
    cap_bytes: int
    # of all contexts' arenas: of nxd_arena_alloc, and in tensors that ranks of a host exchange in
    # place
    arena_bytes_in_use: int
    # address space of the arenas; pages never used take no memory
    arena_bytes_reserved: int
