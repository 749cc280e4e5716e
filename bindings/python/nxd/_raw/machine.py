# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/machine.h."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """Work that the library spends time on while it trains."""

    INVALID = -1
    # y = x W^T of linear layers
    GEMM_FORWARD = 0
    # dx = dy W
    GEMM_INPUT_GRAD = 1
    # dW = dy^T x
    GEMM_WEIGHT_GRAD = 2
    # with its products
    ATTENTION = 3
    CROSS_ENTROPY = 4
    # norms, activations, rotary and other embeddings, casts
    ELEMENTWISE = 5
    # updates, and norms and scaling of gradients
    OPTIMIZER = 6
    # collectives and messages, with the wait for other ranks
    COMMUNICATION = 7


class PhaseStats(NamedTuple):
    """Time and calls of a phase, from nxd_profile_get_phase."""

    # static storage, such as "GEMM forward"
    name: str
    # wall time of the threads that called kernels, added up
    seconds: float
    # floating-point operations: of GEMMs 2 m n k, of attention those that the mask leaves, without
    # the scores computed again; 0 elsewhere
    operations: float
    calls: int
    # of these seconds, those in which a rank had come to a collective or a message and its peers
    # had not; over TCP with the way of headers and of small data. The rest of communication moves
    # and adds data
    waiting_seconds: float
