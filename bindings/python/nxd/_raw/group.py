# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/group.h."""

from __future__ import annotations

from enum import IntEnum


class Reduce(IntEnum):
    """Reductions."""

    INVALID = -1
    # of integers it wraps, as their product does
    SUM = 0
    # sum divided by the group's size; floats only
    AVG = 1
    # NaN wins
    MAX = 2
    # NaN wins
    MIN = 3
    PROD = 4
