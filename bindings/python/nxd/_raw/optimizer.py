# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/optimizer.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, TypedDict

from nxd._raw.base import DType

NAMES = """
typedef int32_t nxd_lr_schedule_t;
typedef int32_t nxd_bf16_update_t;
typedef int32_t nxd_adamw_formula_t;
typedef int32_t nxd_hyperparameter_t;
typedef struct nxd_optimizer nxd_optimizer_t;
typedef struct nxd_lr_schedule_options nxd_lr_schedule_options_t;
typedef struct nxd_adamw_options nxd_adamw_options_t;
typedef struct nxd_sgd_options nxd_sgd_options_t;
typedef struct nxd_update nxd_update_t;
typedef struct nxd_custom_optimizer_options nxd_custom_optimizer_options_t;
typedef struct nxd_step_report nxd_step_report_t;
"""

TYPES = """
typedef nxd_status_t (*nxd_update_fn)(const nxd_update_t* update, void* user_data);
struct nxd_lr_schedule_options {
  size_t struct_size;
  nxd_lr_schedule_t kind;
  int32_t reserved;
  int64_t warmup_steps;
  int64_t total_steps;
  double final_factor;
};
struct nxd_adamw_options {
  size_t struct_size;
  double learning_rate;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  nxd_adamw_formula_t formula;
  nxd_bf16_update_t bf16_update;
};
struct nxd_sgd_options {
  size_t struct_size;
  double learning_rate;
  double momentum;
  double dampening;
  double weight_decay;
  int32_t nesterov;
  nxd_bf16_update_t bf16_update;
};
struct nxd_update {
  size_t struct_size;
  const char* parameter;
  int64_t begin;
  int64_t count;
  nxd_dtype_t dtype;
  nxd_dtype_t grad_dtype;
  void* param;
  const void* grad;
  double grad_scale;
  void* const* states;
  double learning_rate;
  double weight_decay;
  int64_t step;
};
struct nxd_custom_optimizer_options {
  size_t struct_size;
  nxd_update_fn update;
  void* user_data;
  nxd_destroy_fn destroy;
  double learning_rate;
  double weight_decay;
  int32_t num_states;
  nxd_bf16_update_t bf16_update;
};
struct nxd_step_report {
  size_t struct_size;
  double norm;
  double learning_rate;
  int64_t updates;
  int32_t skipped;
  int32_t reserved;
};
"""

FUNCTIONS = """
nxd_status_t nxd_lr_schedule_options_init(nxd_lr_schedule_options_t* options, size_t size);
nxd_status_t nxd_lr_schedule_get_factor(const nxd_lr_schedule_options_t* options, int64_t step, double* out_factor);
nxd_status_t nxd_adamw_options_init(nxd_adamw_options_t* options, size_t size);
nxd_status_t nxd_sgd_options_init(nxd_sgd_options_t* options, size_t size);
nxd_status_t nxd_custom_optimizer_options_init(nxd_custom_optimizer_options_t* options, size_t size);
nxd_status_t nxd_optimizer_create_adamw_ddp(nxd_ddp_t* ddp, const nxd_adamw_options_t* options, nxd_optimizer_t** out_optimizer);
nxd_status_t nxd_optimizer_create_sgd_ddp(nxd_ddp_t* ddp, const nxd_sgd_options_t* options, nxd_optimizer_t** out_optimizer);
nxd_status_t nxd_optimizer_create_custom_ddp(nxd_ddp_t* ddp, const nxd_custom_optimizer_options_t* options, nxd_optimizer_t** out_optimizer);
nxd_status_t nxd_optimizer_add_group(nxd_optimizer_t* optimizer, const char* const* patterns, size_t num_patterns, int32_t* out_group);
nxd_status_t nxd_optimizer_set_hyperparameter(nxd_optimizer_t* optimizer, int32_t group, nxd_hyperparameter_t which, double value);
nxd_status_t nxd_optimizer_get_hyperparameter(nxd_optimizer_t* optimizer, int32_t group, nxd_hyperparameter_t which, double* out_value);
nxd_status_t nxd_optimizer_set_lr_schedule(nxd_optimizer_t* optimizer, const nxd_lr_schedule_options_t* options);
nxd_status_t nxd_optimizer_step(nxd_optimizer_t* optimizer, const nxd_finish_options_t* options, nxd_step_report_t* out_report);
nxd_status_t nxd_optimizer_update(nxd_optimizer_t* optimizer);
nxd_status_t nxd_optimizer_get_parameter_state(nxd_optimizer_t* optimizer, nxd_parameter_state_t* out_state, int64_t* out_step);
nxd_status_t nxd_optimizer_set_learning_rate(nxd_optimizer_t* optimizer, double rate);
nxd_status_t nxd_optimizer_get_learning_rate(nxd_optimizer_t* optimizer, double* out_rate);
nxd_status_t nxd_optimizer_get_state_bytes(nxd_optimizer_t* optimizer, uint64_t* out_bytes);
nxd_status_t nxd_optimizer_save(nxd_optimizer_t* optimizer, const char* path);
nxd_status_t nxd_optimizer_snapshot(nxd_optimizer_t* optimizer, nxd_checkpoint_t* checkpoint, const char* name);
nxd_status_t nxd_optimizer_load(nxd_optimizer_t* optimizer, const char* path);
void nxd_optimizer_destroy(nxd_optimizer_t* optimizer);
"""


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
    # rounded to nearest; no copy: small steps are lost
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
