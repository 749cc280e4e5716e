"""Pipelines of a model's own modules: traced, cut into stages, and run by a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nxd._handle import Struct, fill, get, pointers, strings, text, to_enum, whole
from nxd.autograd import outputs_of
from nxd.data_parallel import Ddp
from nxd.enums import Axis, PpPartition
from nxd.errors import InvalidArgument, callback, check
from nxd.group import collective
from nxd.module import Module, Parameter
from nxd.pipeline import Pipeline, pipeline_group
from nxd.raw import engine, ffi
from nxd.tensors import Tensor

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import PpOptions
    from nxd.context import Context
    from nxd.group import Group

_COUNTS = {"pipeline_cuts": "num_cuts", "leaf_modules": "num_leaf_modules",
           "input_names": "num_input_names"}


def _group_of_costs(context: Context, partition: Any) -> Group | None:
    """The tensor-parallel ranks, which count costs together where the cuts are by costs."""
    with suppress(InvalidArgument):  # which the options' own reader tells
        if partition is not None and to_enum(PpPartition, partition) is PpPartition.COST:
            return context.parallel_group(Axis.TENSOR) if context.model_parallel else None
    return None


def _by_name(inputs: Sequence[Tensor | None], named: dict[str, Tensor],
             kept: list[Any]) -> tuple[Any, Any, int]:
    if inputs:
        raise TypeError("expected all inputs by position or all by name, got both")
    return strings(list(named), kept), pointers("nxd_tensor_t", named.values()), len(named)


class ModulePipeline(Pipeline):
    """This rank's stages of a model. inputs are examples, whose shapes and dtypes count.
    [collective: the pipeline-parallel group; with partition="cost" the tensor-parallel one too]

    param_init(parameter, name, tensor) fills this rank's shard of a parameter on the meta device;
    leaf_rule(module, path, is_leaf) says whether tracing calls a module as a whole; loss_path says
    where the loss lies in nested outputs, such as "losses.lm".
    """

    __slots__ = ("model", "_ddp")

    def __init__(self, model: Module, inputs: Sequence[Tensor | None],
                 **options: Unpack[PpOptions]) -> None:
        given: dict[str, Any] = {**options}
        kept: list[Any] = [model]
        out = ffi.new("nxd_pp_t**")
        with collective(lambda: pipeline_group(model.context)), \
                collective(lambda: _group_of_costs(model.context, given.get("partition"))):
            for key, count in _COUNTS.items():
                if given.get(key) is not None:
                    given[count] = len(given[key])
            for key, callback in (("param_init", _param_init), ("leaf_rule", _leaf_rule)):
                if given.get(key) is not None:
                    kept.append(ffi.new_handle((given[key], model)))
                    given[key], given[key + "_data"] = callback, kept[-1]
            struct = Struct("nxd_pp_options_t", given, engine)
            examples, num_inputs = pointers("nxd_tensor_t", inputs), len(inputs)
        check(engine.nxd_pp_create(model.pointer, examples, num_inputs, struct.pointer, out))
        super().__init__(out[0], kept=kept)
        self.model = model
        self._ddp: Ddp | None = None

    def train(self, *inputs: Tensor | None, **named: Tensor) -> float:
        """Forwards and backwards of all microbatches; gives the loss. Inputs come by position or by
        name; those that are not named are left out. [collective: the pipeline-parallel group, and
        the data-parallel one if losses are averaged]"""
        out = ffi.new("double*")
        self._run((engine.nxd_pp_run_train, engine.nxd_pp_run_train_named), inputs, named, out)
        return out[0]

    def _run(self, functions: tuple[Any, Any], inputs: Sequence[Tensor | None],
             named: dict[str, Tensor], *outputs: Any) -> None:
        kept: list[Any] = []
        with collective(lambda: pipeline_group(self.model.context)):
            given = (_by_name(inputs, named, kept) if named
                     else (pointers("nxd_tensor_t", inputs), len(inputs)))
        by_place, by_name = functions
        with self._running():
            check((by_name if named else by_place)(self.pointer, *given, *outputs))

    def evaluate(self, *inputs: Tensor | None, num_outputs: int = 0,
                 **named: Tensor) -> tuple[float, Any]:
        """Forwards alone; gives the loss, and on the last stage's rank outputs. [collective: as
        train]"""
        out = ffi.new("double*")
        with collective(lambda: pipeline_group(self.model.context)):
            count = whole(num_outputs)
            results = ffi.new("nxd_tensor_t*[]", count or 1)
        self._run((engine.nxd_pp_run_eval, engine.nxd_pp_run_eval_named), inputs, named, out,
                  results if count else ffi.NULL, count)
        return out[0], outputs_of(results, count)

    @property
    def losses(self) -> list[float]:
        """Losses of the last run's microbatches, with return_mb_loss."""
        return fill(engine.nxd_pp_get_losses, "double", self.pointer)  # type: ignore

    def set_ddp(self, ddp: Ddp | None) -> None:
        """Reduces gradients while runs go on. The pipeline keeps the Ddp alive."""
        check(engine.nxd_pp_set_ddp(self.pointer, ffi.NULL if ddp is None else ddp.pointer))
        self._ddp = ddp

    @property
    def local_module(self) -> Module:
        """The part of the model that this rank has: what optimizers take."""
        out = ffi.new("nxd_module_t**")
        check(engine.nxd_pp_get_local_module(self.pointer, out))
        return Module._wrap(out[0], self.model.context, owner=self)  # type: ignore

    def _names(self, count_of: Any, name_of: Any) -> list[str]:
        count, name = ffi.new("size_t*"), ffi.new("const char**")
        check(count_of(self.pointer, count))
        names = []
        for index in range(count[0]):
            check(name_of(self.pointer, index, name))
            names.append(text(name[0]))
        return names

    @property
    def cuts(self) -> list[str]:
        """Paths of the modules that cuts come after."""
        return self._names(engine.nxd_pp_get_cut_count, engine.nxd_pp_get_cut)

    @property
    def output_paths(self) -> list[str]:
        """Paths of the outputs that evaluate gives, in its order."""
        return self._names(engine.nxd_pp_get_output_count, engine.nxd_pp_get_output_path)

    @property
    def local_modules(self) -> list[str]:
        """Paths of the modules that this rank's stages call."""
        return self._names(engine.nxd_pp_get_local_module_count,
                           engine.nxd_pp_get_local_module_name)

    @property
    def unsplit(self) -> list[str]:
        """Modules that cannot put off their weight gradients, in a zero-bubble schedule."""
        return self._names(engine.nxd_pp_get_unsplit_count, engine.nxd_pp_get_unsplit_name)

    @property
    def graph(self) -> str:
        """The traced graph as text."""
        return text(get("const char**", engine.nxd_pp_get_graph_text, self.pointer))


@callback("nxd_param_init_fn")
def _param_init(parameter: Any, name: Any, tensor: Any, held: Any) -> None:
    function, model = ffi.from_handle(held)
    function(Parameter(parameter, model, text(name)), text(name), Tensor.retained(tensor))


@callback("nxd_leaf_fn")
def _leaf_rule(module: Any, path: Any, is_leaf: Any, held: Any) -> None:
    function, model = ffi.from_handle(held)
    is_leaf[0] = function(Module._wrap(module, model.context, owner=model), text(path),
                          bool(is_leaf[0]))
