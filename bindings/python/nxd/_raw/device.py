# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/device.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict


class GraphFormat(IntEnum):
    """How a graph is written down."""

    INVALID = -1
    # a line for each node, with the shapes of results and arguments
    TEXT = 0
    # for Graphviz
    DOT = 1
    # a StableHLO module, as a compiler is given it
    STABLEHLO = 2


class DeviceLoaderOptions(TypedDict, total=False):
    """How a device loader works."""

    # batches that one step takes; 0: 1; at most 2^20
    batches_per_execution: int
    # batches on the device that wait; 0: 2; at most 1024
    prefetch: int
