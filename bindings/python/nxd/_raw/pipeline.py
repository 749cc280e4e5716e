# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/pipeline.h."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypedDict

from nxd._raw.base import DType


class PpScheduleKind(IntEnum):
    """Orders in which ranks compute."""

    INVALID = -1
    # 1F1B with one chunk, INTERLEAVED with several
    DEFAULT = 0
    # one forward, one backward (Narayanan et al. 2019, Megatron's non-interleaved); one chunk
    _1F1B = 1
    # 1F1B over several chunks (Narayanan et al. 2021); microbatches divide by ranks
    INTERLEAVED = 2
    # all forwards, then all backwards (Huang et al. 2019), in the order of the microbatches
    GPIPE = 3
    # ZB-H1: weight gradients fill the bubble (Qi et al. 2023); one chunk. Rank r of P keeps what it
    # keeps in 1F1B, and of up to r microbatches more the inputs and output gradients of linear
    # layers
    ZERO_BUBBLE = 4
    # forwards only
    INFERENCE = 5


class PpTaskKind(IntEnum):
    """The computation of a task."""

    INVALID = -1
    FORWARD = 0
    # gradients of inputs and of parameters
    BACKWARD = 1
    # of inputs alone; a WEIGHT_GRAD follows
    INPUT_GRAD = 2
    WEIGHT_GRAD = 3


class PpLoss(IntEnum):
    """The way in which losses of microbatches add up."""

    INVALID = -1
    DEFAULT = 0
    # the mean of the microbatches' losses
    MICROBATCHES = 1
    # the mean over the valid tokens of all microbatches and data-parallel ranks: see
    # nxd_loss_weights
    TOKENS = 2


class PpPartition(IntEnum):
    """The way in which a model is cut into stages."""

    INVALID = -1
    # at pipeline_cuts if given, else EVEN
    DEFAULT = 0
    # as many layers everywhere, the remainder in the later stages
    EVEN = 1
    # the most expensive stage is as cheap as can be: floating-point operations, counted from
    # shapes, of layers, embedding, head and loss
    COST = 2


class PpTask(NamedTuple):
    """One computation of one rank. The layout never changes."""

    kind: PpTaskKind
    # 0..microbatches - 1
    microbatch: int
    # 0..chunks - 1, of the rank's
    chunk: int


class PpCosts(TypedDict, total=False):
    """Durations to judge a schedule by, in any one unit."""

    # of one microbatch, of each stage; NULL: 1
    forward: Sequence[float]
    # NULL: as forward
    backward_input: Sequence[float]
    # NULL: as forward; a BACKWARD task takes both
    backward_weight: Sequence[float]
    # of values or gradients between stages on different ranks
    transfer: float


class PpReport(NamedTuple):
    """Times of a schedule under given costs."""

    # until the last rank is done
    makespan: float
    # longest chain of tasks and transfers that depend on one another, were there as many processors
    # as tasks
    critical_path: float
    # idle time of all ranks over ranks * makespan, 0 to 1
    bubble_share: float
    # microbatches of a chunk, forwards done and weight gradients not, that the fullest rank keeps
    # at once; 0 without backward tasks
    peak_activations: int
    # the first one, if several are
    fullest_rank: int


class PpCall(NamedTuple):
    """The stage, chunk and microbatch that a callback is called for."""

    # 0..P * V - 1
    stage: int
    # of this rank's
    chunk: int
    microbatch: int
    # 1: no later task of this run adds to this chunk's parameter gradients
    last: int
    # what the loss of this microbatch is multiplied by: scale its gradient so. It is 1 /
    # microbatches
    loss_weight: float


class PpCallbacksOptions(TypedDict, total=False):
    """Options of nxd_pp_create_callbacks; the same on all ranks of the pipeline."""

    # 0: 1
    num_microbatches: int
    # chunks of each rank; 0: 1
    virtual_size: int
    # of training
    schedule: PpScheduleKind | str
    # 1: every rank gets the mean over data-parallel ranks; 0: the last stage's rank gets its own,
    # others 0
    broadcast_and_average_loss: int
    # instead of schedule; NULL: none
    custom_schedule: Any


FIELDS: dict[str, dict[str, type]] = {
    "nxd_pp_task_t": {
        "kind": PpTaskKind,
    },
    "nxd_pp_value_t": {
        "dtype": DType,
    },
    "nxd_pp_callbacks_options_t": {
        "schedule": PpScheduleKind,
    },
}
