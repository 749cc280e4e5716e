"""Optimizers over modules or over a Ddp, and schedules of learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nxd._arrays import over_memory
from nxd._handle import RunningHandle, Struct, c_path, c_text, drop_user_data, get, read_struct, \
    report, strings, text, texts, to_enum, told, user_data, whole
from nxd._raw import StepReport
from nxd.data_parallel import Ddp, finish
from nxd.enums import DType, Hyperparameter, ParameterState
from nxd.errors import callback, check
from nxd.raw import core, engine, ffi

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import AdamwOptions, CustomOptimizerOptions, FinishOptions, \
        LrScheduleOptions, SgdOptions
    from nxd.checkpoint import Checkpoint


class Optimizer(RunningHandle):
    """Updates parameters from their gradients. Over a module's parameters, or over a Ddp."""

    __slots__ = ("kept",)
    _destroy = "nxd_optimizer_destroy"

    def __init__(self, kind: str, over: Any, options: Any) -> None:
        if isinstance(over, Ddp):
            create = getattr(core, f"nxd_optimizer_create_{kind}_ddp")
        else:
            create = getattr(engine, f"nxd_optimizer_create_{kind}")
        # The library keeps what it uses, but for arrays and for what modules are in Python.
        super().__init__(get("nxd_optimizer_t**", create, over.pointer, options), kept=over.kept)
        self.kept = over.kept

    def step(self, **options: Unpack[FinishOptions]) -> StepReport:
        """A step's end: completes the gradients, takes their norm, clips, updates.
        [collective: tensor-, pipeline- and data-parallel groups]"""
        done = report("nxd_step_report_t")
        with self._running():
            check(finish(core.nxd_optimizer_step, self.pointer, options, done))
        return read_struct(StepReport, done)

    def step_without_report(self, **options: Unpack[FinishOptions]) -> None:
        """The same without a report: the recorded device is not asked for the norm, so that the
        update runs, and fails, in mark_step()."""
        with self._running():
            check(finish(core.nxd_optimizer_step, self.pointer, options, ffi.NULL))

    def update(self) -> None:
        """Updates from gradients that are finished."""
        with self._running():
            check(core.nxd_optimizer_update(self.pointer))

    def add_group(self, patterns: Sequence[str],
                  values: Mapping[Hyperparameter | str, float] | None = None) -> int:
        """Puts the parameters that names or patterns such as "*.bias" match into a group with
        hyperparameters of its own."""
        kept: list[Any] = []
        out = ffi.new("int32_t*")
        given = texts("patterns", patterns)
        check(core.nxd_optimizer_add_group(self.pointer, strings(given, kept), len(given), out))
        for which, value in (values or {}).items():
            self.set_hyperparameter(which, value, out[0])
        return out[0]

    def set_hyperparameter(self, which: Hyperparameter | str, value: float,
                           group: int = -1) -> None:
        """From the next step on; group -1: of all groups."""
        check(core.nxd_optimizer_set_hyperparameter(self.pointer, whole(group),
                                                    to_enum(Hyperparameter, which), value))

    def hyperparameter(self, which: Hyperparameter | str, group: int = 0) -> float:
        return get("double*", core.nxd_optimizer_get_hyperparameter, self.pointer, whole(group),
                   to_enum(Hyperparameter, which))

    def set_lr_schedule(self, **options: Unpack[LrScheduleOptions]) -> None:
        """Makes the learning rate follow a schedule."""
        struct = Struct("nxd_lr_schedule_options_t", options)
        check(core.nxd_optimizer_set_lr_schedule(self.pointer, struct.pointer))

    @property
    def learning_rate(self) -> float:
        """Rate of group 0 at the next step, with the schedule's factor; set for all groups."""
        return get("double*", core.nxd_optimizer_get_learning_rate, self.pointer)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        check(core.nxd_optimizer_set_learning_rate(self.pointer, rate))

    @property
    def state_bytes(self) -> int:
        """Bytes of state that this rank holds."""
        return get("uint64_t*", core.nxd_optimizer_get_state_bytes, self.pointer)

    @property
    def parameter_state(self) -> tuple[ParameterState, int]:
        """State in which the last step left this rank's parameters, and which step that was."""
        state, step = ffi.new("nxd_parameter_state_t*"), ffi.new("int64_t*")
        check(core.nxd_optimizer_get_parameter_state(self.pointer, state, step))
        return ParameterState(state[0]), step[0]

    def save(self, path: str) -> None:
        """Writes the whole state as one file. [collective: tensor, data, pipeline groups]"""
        told(c_path, path, lambda given: check(core.nxd_optimizer_save(self.pointer, given)))

    def snapshot(self, checkpoint: Checkpoint, name: str) -> None:
        """The state as it is now becomes a file of a checkpoint. [collective: world]"""
        told(c_text, name, lambda given: check(core.nxd_optimizer_snapshot(
            self.pointer, checkpoint.pointer, given)))

    def load(self, path: str) -> None:
        """Reads this rank's part of a state that any layout wrote."""
        check(core.nxd_optimizer_load(self.pointer, c_path(path)))


class AdamW(Optimizer):
    __slots__ = ()

    def __init__(self, over: Any, **options: Unpack[AdamwOptions]) -> None:
        super().__init__("adamw", over, Struct("nxd_adamw_options_t", options).pointer)


class Sgd(Optimizer):
    __slots__ = ()

    def __init__(self, over: Any, **options: Unpack[SgdOptions]) -> None:
        super().__init__("sgd", over, Struct("nxd_sgd_options_t", options).pointer)


@dataclass(slots=True)
class Update:
    """The run of elements of one parameter that an update rule works on, as arrays over the
    library's memory, valid during the call, which it changes in place: update.param -= ... The
    gradient is to be multiplied by grad_scale. Arrays of bf16 have ml_dtypes' type; where that is
    not installed they refuse arithmetic and values, and have 16-bit words by .view(numpy.uint16).
    """

    parameter: str
    begin: int
    param: Any
    grad: Any
    states: list[Any]
    grad_scale: float
    learning_rate: float
    weight_decay: float
    step: int


@callback("nxd_update_fn")
def _update(update: Any, held: Any) -> None:
    rule, n_states = ffi.from_handle(held)
    shape, dtype = (update.count,), DType(update.dtype)
    wide = DType.F64 if dtype is DType.F64 else DType.F32
    states = [over_memory(update.states[i], shape, wide) for i in range(n_states)]
    rule(Update(text(update.parameter), update.begin, over_memory(update.param, shape, dtype),
                over_memory(update.grad, shape, DType(update.grad_dtype), writable=False), states,
                update.grad_scale, update.learning_rate, update.weight_decay, update.step))


class CustomOptimizer(Optimizer):
    """An update rule of one's own: called with an Update for each run of elements, it changes
    param and states in place, each element by itself."""

    __slots__ = ()

    def __init__(self, over: Any, rule: Callable[[Update], None],
                 **options: Unpack[CustomOptimizerOptions]) -> None:
        struct = Struct("nxd_custom_optimizer_options_t", options)
        struct.pointer.update, struct.pointer.destroy = _update, drop_user_data
        with user_data.given((rule, struct.pointer.num_states)) as held:
            struct.pointer.user_data = held
            super().__init__("custom", over, struct.pointer)


def lr_schedule_factor(step: int, **options: Unpack[LrScheduleOptions]) -> float:
    """The factor on the learning rate at a step."""
    struct = Struct("nxd_lr_schedule_options_t", options)
    return get("double*", core.nxd_lr_schedule_get_factor, struct.pointer, whole(step))
