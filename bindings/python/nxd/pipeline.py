"""Pipelines over buffers: schedules, and stages that the caller computes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nxd._arrays import over_dltensor
from nxd._handle import Handle, RunningHandle, Struct, c_path, c_text, drop_user_data, get, \
    integers, read_struct, report, text, to_enum, told, told_number, user_data, whole
from nxd._raw import PpCall, PpReport, PpTask
from nxd.enums import Axis, DType, PpScheduleKind
from nxd.errors import InvalidArgument, InvalidState, callback, check
from nxd.group import collective
from nxd.raw import core, ffi

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import PpCallbacksOptions, PpCosts
    from nxd.context import Context
    from nxd.group import Group


class PipelineSchedule(Handle):
    """The tasks of all ranks of a pipeline, known to be complete and free of deadlock."""

    __slots__ = ()
    _destroy = "nxd_pp_schedule_destroy"

    @classmethod
    def of_kind(cls, kind: PpScheduleKind | str, ranks: int, chunks: int,
                microbatches: int) -> PipelineSchedule:
        return cls(get("nxd_pp_schedule_t**", core.nxd_pp_schedule_create,
                       to_enum(PpScheduleKind, kind), whole(ranks), whole(chunks),
                       whole(microbatches)))

    @classmethod
    def of_tasks(cls, chunks: int, microbatches: int,
                 tasks: Sequence[Sequence[PpTask]]) -> PipelineSchedule:
        """A schedule of one's own: the tasks of each rank, in the order it makes them."""
        out = ffi.new("nxd_pp_schedule_t**")
        flat = [tuple(map(whole, task)) for rank in tasks for task in rank]
        check(core.nxd_pp_schedule_create_tasks(
            len(tasks), whole(chunks), whole(microbatches), ffi.new("nxd_pp_task_t[]", flat or 1),
            ffi.new("size_t[]", [len(rank) for rank in tasks] or 1), out))
        return cls(out[0])

    def tasks(self, rank: int) -> list[PpTask]:
        rank, count = whole(rank), ffi.new("size_t*")
        check(core.nxd_pp_schedule_get_tasks(self.pointer, rank, ffi.NULL, 0, count))
        room = ffi.new("nxd_pp_task_t[]", count[0] or 1)
        check(core.nxd_pp_schedule_get_tasks(self.pointer, rank, room, count[0], count))
        return [read_struct(PpTask, room + i) for i in range(count[0])]

    @property
    def name(self) -> str:
        return text(get("const char**", core.nxd_pp_schedule_get_name, self.pointer))

    def _stages(self) -> int:
        """Ranks times chunks."""
        chunks, ranks = 1 + max(task.chunk for task in self.tasks(0)), 1
        with suppress(InvalidArgument):  # as one past the last rank is
            while True:
                self.tasks(ranks)
                ranks += 1
        return ranks * chunks

    def report(self, **costs: Unpack[PpCosts]) -> PpReport:
        """Plays the schedule through under given costs: numbers, and lists with one for each
        stage."""
        given = {name: list(cost) if isinstance(cost, Iterable) else cost
                 for name, cost in costs.items()}
        for name, cost in given.items():
            if isinstance(cost, list) and len(cost) != self._stages():
                raise InvalidArgument(f"{name}: expected one for each of {self._stages()} stages, "
                                      f"got {len(cost)}")
        struct, out = Struct("nxd_pp_costs_t", given), report("nxd_pp_report_t")
        check(core.nxd_pp_schedule_get_report(self.pointer, struct.pointer, out))
        return read_struct(PpReport, out)


def pipeline_group(context: Context) -> Group | None:
    """The stages of a pipeline; None where the world is not laid out."""
    return context.parallel_group(Axis.PIPELINE) if context.model_parallel else None


class Value(NamedTuple):
    """A tensor that goes from one stage to the next, of the same shape in every microbatch. In
    bf16 its arrays have the type that Stage tells."""

    name: str
    shape: tuple[int, ...]
    dtype: DType | str = DType.F32
    needs_grad: bool = True


class Stage(Protocol):
    """A rank's stages. Arrays are numpy's over the library's memory, valid during the call; inputs
    stay as they are until the microbatch's last backward task. Arrays of bf16 have ml_dtypes' type;
    where that is not installed they refuse arithmetic and values, and have 16-bit words by
    .view(numpy.uint16). Two more methods, backward_input (of grad_inputs alone) and
    backward_weight(call, inputs, grad_outputs), admit zero_bubble."""

    def forward(self, call: PpCall, inputs: list[Any], outputs: list[Any]) -> float | None:
        """Fills outputs; in the last stage gives the loss."""

    def backward(self, call: PpCall, inputs: list[Any], grad_outputs: list[Any],
                 grad_inputs: list[Any]) -> None:
        """Fills grad_inputs and adds to the parameters' gradients."""


class Pipeline(RunningHandle):
    """The base of pipelines, over stages of one's own or of a model."""

    __slots__ = ()
    _destroy = "nxd_pp_destroy"

    @property
    def has_loss(self) -> bool:
        """True if this rank has the last stage, and so the losses."""
        return bool(get("int32_t*", core.nxd_pp_has_loss, self.pointer))

    @property
    def schedule(self) -> PipelineSchedule:
        """The schedule of training runs."""
        borrowed = get("nxd_pp_schedule_t**", core.nxd_pp_get_schedule, self.pointer)
        return PipelineSchedule(borrowed, owner=self)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers received into on this rank."""
        return get("uint64_t*", core.nxd_pp_get_buffer_bytes, self.pointer)

    def set_timeline(self, on: bool) -> None:
        """Records when tasks, messages and waits begin and end."""
        check(core.nxd_pp_set_timeline(self.pointer, whole(on)))

    def write_timeline(self, path: str) -> None:
        """As a trace (.json), on rank 0. [collective: world]"""
        told(c_path, path, lambda given: check(core.nxd_pp_write_timeline(self.pointer, given)))


class CallbackPipeline(Pipeline):
    """A pipeline whose stages the caller computes. [collective: the pipeline-parallel group]

    inputs and outputs have a list of values for each of this rank's chunks: none for stage 0's
    inputs and the last stage's outputs.
    """

    __slots__ = ("stage", "_n_inputs", "_n_outputs")

    def __init__(self, context: Context, stage: Stage, inputs: Sequence[Sequence[Value]],
                 outputs: Sequence[Sequence[Value]],
                 **options: Unpack[PpCallbacksOptions]) -> None:
        self.stage = stage
        kept: list[Any] = []
        out = ffi.new("nxd_pp_t**")
        with collective(lambda: pipeline_group(context)):
            struct, callbacks = self._described(stage, inputs, outputs, options)
            lists = (*_values(inputs, kept), *_values(outputs, kept))
        # Held weakly, since a stage may well refer to its pipeline.
        with user_data.given(weakref.ref(self)) as held:
            callbacks.pointer.user_data = held
            check(core.nxd_pp_create_callbacks(context.pointer, struct.pointer, *lists,
                                               callbacks.pointer, out))
        super().__init__(out[0])

    def _described(self, stage: Stage, inputs: Sequence[Sequence[Value]],
                   outputs: Sequence[Sequence[Value]],
                   options: Mapping[str, Any]) -> tuple[Struct, Struct]:
        self._n_inputs = [len(chunk) for chunk in inputs]
        self._n_outputs = [len(chunk) for chunk in outputs]
        given: dict[str, Any] = {"virtual_size": len(inputs), **options}
        if not len(inputs) == len(outputs) == given["virtual_size"] > 0:
            raise InvalidArgument(f"inputs, outputs: expected a list of values for each of "
                                  f"{given['virtual_size'] or 1} chunks, got {len(inputs)} and "
                                  f"{len(outputs)} lists")
        struct = Struct("nxd_pp_callbacks_options_t", given)
        split = callable(getattr(stage, "backward_input", None))
        callbacks = Struct("nxd_pp_stage_callbacks_t", {
            "forward": _forward, "backward": _backward, "destroy": drop_user_data,
            "backward_input": _backward_input if split else None,
            "backward_weight": _backward_weight if split else None})
        return struct, callbacks

    def run(self, training: bool = True) -> float:
        """Forwards and backwards of all microbatches, or forwards alone; gives the mean loss.
        [collective: the pipeline-parallel group, and the data-parallel one if losses are averaged]
        """
        with self._running():
            return told_number(training, lambda flag: get("double*", core.nxd_pp_run, self.pointer,
                                                          flag))


def _values(chunks: Sequence[Sequence[Value]], kept: list[Any]) -> tuple[Any, Any]:
    """nxd_pp_value_t of all chunks, and how many each has."""
    flat = [value for chunk in chunks for value in chunk]
    array = ffi.new("nxd_pp_value_t[]", len(flat) or 1)
    for target, value in zip(array, flat):
        target.name = name = ffi.new("char[]", c_text(value.name))
        target.shape = shape = integers(value.shape)
        target.ndim, target.needs_grad = len(value.shape), whole(value.needs_grad)
        target.dtype = to_enum(DType, value.dtype)
        kept += [name, shape]
    counts = ffi.new("size_t[]", [len(chunk) for chunk in chunks] or 1)
    kept += [array, counts]
    return array if flat else ffi.NULL, counts


def _arrays(tensors: Any, n: int, writable: bool = True) -> list[Any]:
    """numpy arrays over DLTensors; None where a value has no gradient."""
    if tensors == ffi.NULL:
        return [None] * n
    return [over_dltensor(tensors[i], writable) for i in range(n)]


def _pipeline(held: Any, call: Any) -> tuple[Any, PpCall, int, int]:
    """The stages, what they are called for, and how many inputs and outputs that has."""
    pipeline = ffi.from_handle(held)()
    if pipeline is None:
        raise InvalidState("the pipeline of this stage is gone")
    chunk = call.chunk
    return (pipeline.stage, read_struct(PpCall, call), pipeline._n_inputs[chunk],
            pipeline._n_outputs[chunk])


@callback("nxd_pp_stage_callbacks_t.forward")
def _forward(call: Any, inputs: Any, outputs: Any, out_loss: Any, held: Any) -> None:
    stage, what, n_in, n_out = _pipeline(held, call)
    loss = stage.forward(what, _arrays(inputs, n_in, False), _arrays(outputs, n_out))
    if out_loss != ffi.NULL and loss is not None:
        out_loss[0] = loss


@callback("nxd_pp_stage_callbacks_t.backward")
def _backward(call: Any, inputs: Any, grad_outputs: Any, grad_inputs: Any, held: Any) -> None:
    stage, what, n_in, n_out = _pipeline(held, call)
    stage.backward(what, _arrays(inputs, n_in, False), _arrays(grad_outputs, n_out, False),
                   _arrays(grad_inputs, n_in))


@callback("nxd_pp_stage_callbacks_t.backward_input")
def _backward_input(call: Any, inputs: Any, grad_outputs: Any, grad_inputs: Any,
                    held: Any) -> None:
    stage, what, n_in, n_out = _pipeline(held, call)
    stage.backward_input(what, _arrays(inputs, n_in, False), _arrays(grad_outputs, n_out, False),
                         _arrays(grad_inputs, n_in))


@callback("nxd_pp_stage_callbacks_t.backward_weight")
def _backward_weight(call: Any, inputs: Any, grad_outputs: Any, held: Any) -> None:
    stage, what, n_in, n_out = _pipeline(held, call)
    stage.backward_weight(what, _arrays(inputs, n_in, False), _arrays(grad_outputs, n_out, False))
