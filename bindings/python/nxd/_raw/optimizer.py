# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/optimizer.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, TypedDict

from nxd._raw.base import DType


class LrSchedule(IntEnum):
    """Learning rates over time; all rise linearly from rate / warmup_steps over the warm-up."""

    INVALID = -1
    CONSTANT = 0
    # down to final_factor at total_steps
    LINEAR = 1
    # the same along half a cosine (Loshchilov and Hutter 2017)
    COSINE = 2


class Bf16Update(IntEnum):
    """The update of BF16 parameters, whose spacing is wider than most steps."""

    INVALID = -1
    # an f32 copy is updated, and rounded to nearest
    MASTER = 0
    # rounded stochastically; no copy
    STOCHASTIC = 1
    # to nearest, or as the device does; small steps are lost
    NEAREST = 2


class AdamwFormula(IntEnum):
    """Formulas of AdamW."""

    INVALID = -1
    # torch.optim.AdamW
    TORCH = 0
    # NxD Core's: eps beside the uncorrected root; decay last
    NXD = 1


class Hyperparameter(IntEnum):
    """Hyperparameters; see the options of each optimizer."""

    INVALID = -1
    # without the schedule's factor
    LEARNING_RATE = 0
    WEIGHT_DECAY = 1
    BETA1 = 2
    BETA2 = 3
    EPS = 4
    MOMENTUM = 5
    DAMPENING = 6


class LrScheduleOptions(TypedDict, total=False):
    """A schedule of learning rates. Steps count from 0; after total_steps the factor stays."""

    kind: LrSchedule | str
    warmup_steps: int
    # LINEAR and COSINE: more than warmup_steps
    total_steps: int
    # of [0, 1]
    final_factor: float


class AdamwOptions(TypedDict, total=False):
    """Options of nxd_optimizer_create_adamw."""

    # 0: 1e-3
    learning_rate: float
    # 0: 0.9
    beta1: float
    # 0: 0.999
    beta2: float
    # 0: 1e-8
    eps: float
    # 0: none
    weight_decay: float
    formula: AdamwFormula | str
    bf16_update: Bf16Update | str


class SgdOptions(TypedDict, total=False):
    """Options of nxd_optimizer_create_sgd: torch.optim.SGD."""

    # 0: 1e-3
    learning_rate: float
    # of [0, 1)
    momentum: float
    # not at a parameter's first update; torch: not at its first with a momentum, which comes later
    # where that was 0
    dampening: float
    weight_decay: float
    # 1: needs a momentum, and no dampening
    nesterov: int
    bf16_update: Bf16Update | str


class CustomOptimizerOptions(TypedDict, total=False):
    """Options of nxd_optimizer_create_custom."""

    # called on the thread of nxd_optimizer_step or _update
    update: Any
    user_data: Any
    # called with user_data when the optimizer is gone; may be NULL
    destroy: Any
    # 0: 1e-3
    learning_rate: float
    weight_decay: float
    # 0 to 8
    num_states: int
    # not STOCHASTIC
    bf16_update: Bf16Update | str


class StepReport(NamedTuple):
    """Report of a step."""

    # of all gradients before clipping; the same bits on all ranks
    norm: float
    # of group 0, with the schedule's factor
    learning_rate: float
    # made so far, this one included
    updates: int
    # 1: the norm was not finite, and nothing was updated
    skipped: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_lr_schedule_options_t": {
        "kind": LrSchedule,
    },
    "nxd_adamw_options_t": {
        "formula": AdamwFormula,
        "bf16_update": Bf16Update,
    },
    "nxd_sgd_options_t": {
        "bf16_update": Bf16Update,
    },
    "nxd_update_t": {
        "dtype": DType,
        "grad_dtype": DType,
    },
    "nxd_custom_optimizer_options_t": {
        "bf16_update": Bf16Update,
    },
}
