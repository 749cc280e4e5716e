"""Modules, whose forward may be written in Python, and their parameters."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from nxd import errors
from nxd._array_calls import among
from nxd._handle import EngineHandle, RunningHandle, Struct, c_path, c_text, drop_user_data, \
    fill, get, integers, strings, text, texts, to_enum, told, told_row, user_data, whole
from nxd.autograd import _own, give, inputs_of, outputs_of
from nxd.enums import Device, DType, Mismatch
from nxd.errors import InvalidState, callback, check
from nxd.raw import engine, ffi
from nxd.tensors import Tensor

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import ParameterOptions
    from nxd.checkpoint import Checkpoint
    from nxd.context import Context


# name, shape of the whole, place of the first element, and the values from there on
Initializer = Callable[[str, "tuple[int, ...]", int, memoryview], None]

# a module, its heads, and what they are padded to
PadHook = Callable[["Module", int, int], None]


def _set_initializer(set_on: Any, pointer: Any, initializer: Initializer | None) -> None:
    if initializer is None:
        check(set_on(pointer, ffi.NULL, ffi.NULL, ffi.NULL))
        return
    with user_data.given(initializer) as held:
        check(set_on(pointer, _initial_values, held, drop_user_data))


@contextmanager
def deferred_init(deferred: bool = True) -> Iterator[None]:
    """Modules that this thread makes within a with block are on the meta device: their parameters
    have shapes and no memory until they are moved or loaded, or a pipeline has them."""
    before = ffi.new("int32_t*")
    check(engine.nxd_set_deferred_init(whole(deferred), before))
    try:
        yield
    finally:
        check(engine.nxd_set_deferred_init(before[0], ffi.NULL))


class Shard(NamedTuple):
    """Which part of a parameter a rank has: ranges of indices in a dimension, -1 when whole."""

    dim: int
    ranges: list[tuple[int, int]]


class Parameter(EngineHandle):
    """A parameter of a module, or rather this rank's shard of it; borrowed from the module."""

    __slots__ = ("name",)

    def __init__(self, pointer: Any, owner: Module, name: str) -> None:
        super().__init__(pointer, owner)
        self.name = name

    @property
    def tensor(self) -> Tensor:
        """This rank's shard."""
        return Tensor.retained(get("nxd_tensor_t**", engine.nxd_parameter_get_tensor, self.pointer))

    @property
    def grad(self) -> Tensor | None:
        return self.tensor.grad

    @property
    def global_shape(self) -> tuple[int, ...]:
        return tuple(fill(engine.nxd_parameter_get_global_shape, "int64_t", self.pointer))

    @property
    def shard(self) -> Shard:
        dim, count = ffi.new("int32_t*"), ffi.new("size_t*")
        get = engine.nxd_parameter_get_shard
        check(get(self.pointer, dim, ffi.NULL, ffi.NULL, 0, count))
        n = count[0]
        begins, ends = ffi.new("int64_t[]", n or 1), ffi.new("int64_t[]", n or 1)
        check(get(self.pointer, dim, begins, ends, n, count))
        return Shard(dim[0], [(begins[i], ends[i]) for i in range(n)])

    def set_full(self, whole: Tensor) -> None:
        """Overwrites this rank's shard with its part of the whole value."""
        check(engine.nxd_parameter_set_full(self.pointer, whole.pointer))

    def gather_full(self) -> Tensor:
        """The whole value. [collective: tensor-parallel group]"""
        return Tensor(get("nxd_tensor_t**", engine.nxd_parameter_gather_full, self.pointer))

    def gather_full_grad(self) -> Tensor | None:
        """The whole gradient, as far as it is finished. [collective: tensor-parallel group]"""
        return _own(get("nxd_tensor_t**", engine.nxd_parameter_gather_full_grad, self.pointer))

    def set_trainable(self, trainable: bool) -> None:
        check(engine.nxd_parameter_set_trainable(self.pointer, whole(trainable)))

    def on_grad(self, hook: Callable[[], None] | None) -> None:
        """Calls hook() when a backward pass has added to the gradient; None: no more."""
        set_hook = engine.nxd_parameter_set_grad_hook
        if hook is None:
            check(set_hook(self.pointer, ffi.NULL, ffi.NULL, ffi.NULL))
            return
        with user_data.given(hook) as held:
            check(set_hook(self.pointer, _grad_hook, held, drop_user_data))


    def set_initializer(self, initializer: Initializer | None) -> None:
        """Takes its initial values from a function whenever they are drawn: initializer(name,
        global_shape, first, values) fills a memoryview of doubles, those of the elements from
        first on in row-major order. None: from its layer's options and the seed again."""
        _set_initializer(engine.nxd_parameter_set_initializer, self.pointer, initializer)


class LoadReport(NamedTuple):
    """Names and tensors that a load did not match."""

    missing: list[str]
    unexpected: list[str]
    shape: list[str]


class Module(EngineHandle):
    """A node of a model. A subclass writes forward(self, *inputs), which gives a tensor or a tuple
    of them; calling the module runs it. [collective: the groups of its layers]

    In Python a module lives as long as itself, its parent, or an optimizer, Ddp or pipeline over
    its root is referred to.
    """

    # A __dict__, so that subclasses have attributes as usual.
    _destroy = "nxd_module_destroy"

    def __init__(self, context: Context, class_name: str | None = None,
                 num_outputs: int = 1) -> None:
        written = type(self).forward is not Module.forward
        name = class_name or (type(self).__name__ if written else "Container")
        # The library has the forward as long as the tree; this object must not live for that.
        with user_data.given(weakref.ref(self)) as held:
            self._adopt(get("nxd_module_t**", engine.nxd_module_create, context.pointer,
                            c_text(name), _forward if written else ffi.NULL, held,
                            drop_user_data), context, None, num_outputs)

    def _adopt(self, pointer: Any, context: Context, owner: Module | None,
               num_outputs: int = 1) -> None:
        EngineHandle.__init__(self, pointer, owner)
        self.context = context
        self.num_outputs = num_outputs
        self._children: dict[str, Module] = {}

    @classmethod
    def _wrap(cls, pointer: Any, context: Context, owner: Module | None = None,
              num_outputs: int = 1) -> Module:
        module = Module.__new__(Module)
        module._adopt(pointer, context, owner, num_outputs)
        return module

    @property
    def kept(self) -> Module:
        """The part of this module that objects over it keep alive."""
        return self

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *inputs: Tensor | None, num_outputs: int | None = None) -> Any:
        return self._run(engine.nxd_module_forward, inputs, num_outputs)

    def _run(self, function: Any, inputs: Sequence[Tensor | None], num_outputs: int | None,
             *more: Any) -> Any:
        try:
            n = operator.index(self.num_outputs if num_outputs is None else num_outputs)
            out = ffi.new("nxd_tensor_t*[]", n or 1)
        except Exception:
            function(self.pointer, ffi.NULL, 0, ffi.NULL, 1, *more)  # which tells the other ranks
            raise
        check(told_row("nxd_tensor_t", inputs, lambda row, count: function(
            self.pointer, row, count, out, n, *more)))
        return outputs_of(out, n)

    def tape(self, *inputs: Tensor | None, num_outputs: int | None = None) -> tuple[Any, Tape]:
        """Runs the module for a framework with its own differentiation: outputs, and what its
        backward needs."""
        tape = ffi.new("nxd_tape_t**")
        outputs = self._run(engine.nxd_module_forward_tape, inputs, num_outputs, tape)
        return outputs, Tape(tape[0], self, len(inputs))

    # The tree.

    def add_child(self, name: str, child: Module) -> Any:
        """Adds a child, and gives it back."""
        check(engine.nxd_module_add_child(self.pointer, c_text(name), child.pointer))
        self._children[name] = child
        return child

    def add_parameter(self, name: str, global_shape: Sequence[int],
                      **options: Unpack[ParameterOptions]) -> Parameter:
        """Adds a parameter; with shard_dim that dimension is split over ranks."""
        struct = Struct("nxd_parameter_options_t", options, engine)
        out = ffi.new("nxd_parameter_t**")
        check(engine.nxd_module_add_parameter(
            self.pointer, c_text(name), integers(global_shape), len(global_shape), struct.pointer,
            out))
        return Parameter(out[0], self, name)

    def add_buffer(self, name: str, tensor: Tensor, saved: bool = True) -> None:
        """Adds a tensor that no gradient reaches, such as a running mean, and shares it."""
        check(engine.nxd_module_add_buffer(self.pointer, c_text(name), tensor.pointer,
                                           whole(saved)))

    def buffer(self, name: str) -> Tensor:
        """A buffer of the tree by its name."""
        return Tensor(get("nxd_tensor_t**", engine.nxd_module_share_buffer, self.pointer,
                          c_text(name)))

    def buffers(self) -> dict[str, Tensor]:
        """All buffers of the tree."""
        count = get("size_t*", engine.nxd_module_get_buffer_count, self.pointer)
        found = {}
        for index in range(count):
            function = engine.nxd_module_get_buffer_name
            needed = get("size_t*", function, self.pointer, index, ffi.NULL, 0)
            room = ffi.new("char[]", needed)
            check(function(self.pointer, index, room, needed, ffi.new("size_t*")))
            found[text(room)] = self.buffer(text(room))
        return found

    def save_torchscript(self, path: str) -> None:
        """Writes a module of a TorchScript file back, with its values as they are now."""
        check(engine.nxd_model_save_torchscript(self.pointer, c_path(path)))

    def tie(self, owner_path: str, alias_path: str) -> None:
        """Makes one parameter stand for another's as well."""
        check(engine.nxd_module_tie(self.pointer, c_text(owner_path), c_text(alias_path)))

    @property
    def output_paths(self) -> list[str]:
        """The path of each output that the last forward could give: names, keys and positions that
        lead to it in the result, joined by dots."""
        count, path = ffi.new("size_t*"), ffi.new("const char**")
        check(engine.nxd_module_get_output_count(self.pointer, count))
        paths = []
        for index in range(count[0]):
            check(engine.nxd_module_get_output_path(self.pointer, index, path))
            paths.append(text(path[0]))
        return paths

    @property
    def class_name(self) -> str:
        return text(get("const char**", engine.nxd_module_get_class_name, self.pointer))

    def module(self, path: str) -> Module:
        """A module below this one, by its dotted path."""
        known: Module | None = self
        for part in path.split(".") if path else []:
            known = known._children.get(part) if known is not None else None
        if known is not None:
            return known
        out = ffi.new("nxd_module_t**")
        check(engine.nxd_module_find_module(self.pointer, c_text(path), out))
        return Module._wrap(out[0], self.context, owner=self)

    def children(self) -> Iterator[tuple[str, Module]]:
        """Direct children by name."""
        count, name = ffi.new("size_t*"), ffi.new("const char**")
        check(engine.nxd_module_get_child_count(self.pointer, count))
        for index in range(count[0]):
            check(engine.nxd_module_get_child(self.pointer, index, ffi.NULL, name))
            path = text(name[0])
            yield path, self.module(path)

    def parameter(self, name: str) -> Parameter:
        """A parameter of the tree by its name."""
        out = ffi.new("nxd_parameter_t**")
        check(engine.nxd_module_find_parameter(self.pointer, c_text(name), out))
        return Parameter(out[0], self, name)

    def parameters(self) -> list[Parameter]:
        """All parameters of the tree; tied ones once."""
        count, name = ffi.new("size_t*"), ffi.new("const char**")
        out = ffi.new("nxd_parameter_t**")
        check(engine.nxd_module_get_parameter_count(self.pointer, count))
        found = []
        for index in range(count[0]):
            check(engine.nxd_module_get_parameter(self.pointer, index, out, name))
            found.append(Parameter(out[0], self, text(name[0])))
        return found

    # Methods of the whole tree.

    def train(self, training: bool = True) -> None:
        """Between training and evaluation: dropout."""
        check(engine.nxd_module_set_training(self.pointer, whole(training)))

    def initialize(self, seed: int) -> None:
        """Draws all parameters anew, by their names from here."""
        check(engine.nxd_module_initialize(self.pointer, whole(seed)))

    def set_initializer(self, initializer: Initializer | None) -> None:
        """Parameter.set_initializer of all parameters that the tree has now."""
        _set_initializer(engine.nxd_module_set_initializer, self.pointer, initializer)

    def move_to(self, device: Device | str) -> None:
        check(engine.nxd_move_model_to_device(self.pointer, to_enum(Device, device)))

    def cast(self, dtype: DType | str) -> None:
        """Casts all parameters, in place."""
        check(engine.nxd_module_cast(self.pointer, to_enum(DType, dtype)))

    def zero_grad(self) -> None:
        check(engine.nxd_module_zero_grad(self.pointer))

    def master_weight(self) -> Tensor:
        """The whole initial weight of a layer made with keep_master_weight."""
        return Tensor.retained(get("nxd_tensor_t**", engine.nxd_module_get_master_weight,
                                   self.pointer))

    def checkpoint(self, names: Sequence[str] | None = None, on: bool = True) -> None:
        """Recomputes the activations of modules in their backward pass."""
        kept: list[Any] = []
        given = None if names is None else texts("names", names)
        check(engine.nxd_apply_checkpoint(self.pointer, strings(given, kept), len(given or ()),
                                          whole(on)))

    def pad(self, tp_degree: int, num_heads: int, wrapped_classes: Sequence[str] = (),
            hook: PadHook | None = None) -> None:
        """Has column- and row-parallel layers, those below modules of some classes or all, share
        whole heads, as if heads of zeros followed up to a multiple of tp_degree. hook is called
        with each module that is visited, the heads and the padded heads.
        [collective: tensor-parallel group]"""
        kept: list[Any] = []
        with among(self.context):
            classes = texts("wrapped_classes", wrapped_classes)
            array = strings(classes, kept) if classes else ffi.NULL
            given = (ffi.NULL if hook is None else
                     ffi.new_handle((dict(self._by_address()), hook)))
            status = engine.nxd_pad_model(self.pointer, whole(tp_degree), whole(num_heads), array,
                                          len(classes),
                                          ffi.NULL if hook is None else _pad_hook, given)
        check(status)

    def _by_address(self, root: Module | None = None, path: str = "") -> Iterator[
            tuple[int, Module]]:
        """The modules of the tree by their addresses in callbacks."""
        root = root or self
        borrowed = get("nxd_module_t**", engine.nxd_module_find_module, root.pointer, c_text(path))
        yield int(ffi.cast("intptr_t", borrowed)), self
        for name, child in self.children():
            yield from child._by_address(root, f"{path}.{name}" if path else name)

    def load_safetensors(self, path: str, strict: bool = True) -> LoadReport:
        """Reads parameters; each rank its own shards only."""
        out = ffi.new("nxd_load_report_t**")
        status = engine.nxd_module_load_safetensors(self.pointer, c_path(path), whole(strict),
                                                    out)
        # A strict load that fails gives a report, too, but its message says it all.
        error = errors.failure(status) if status != 0 else None
        report = _Report(out[0]) if out[0] != ffi.NULL else None
        if error is not None:
            raise error
        assert report is not None
        with report:
            return LoadReport(*(report.names(kind) for kind in
                                (Mismatch.MISSING, Mismatch.UNEXPECTED, Mismatch.SHAPE)))

    def save_safetensors(self, path: str) -> None:
        """Writes the whole parameters. [collective: tensor- and pipeline-parallel groups]"""
        told(c_path, path, lambda given: check(engine.nxd_module_save_safetensors(
            self.pointer, given)))

    def snapshot(self, checkpoint: Checkpoint, name: str) -> None:
        """The parameters as they are now become a file of a checkpoint. [collective: world]"""
        told(c_text, name, lambda given: check(engine.nxd_module_snapshot(
            self.pointer, checkpoint.pointer, given)))


class _Report(EngineHandle):
    __slots__ = ()
    _destroy = "nxd_load_report_destroy"

    def names(self, kind: Mismatch) -> list[str]:
        count, name = ffi.new("size_t*"), ffi.new("const char**")
        check(engine.nxd_load_report_get_count(self.pointer, kind, count))
        found = []
        for index in range(count[0]):
            check(engine.nxd_load_report_get_name(self.pointer, kind, index, name))
            found.append(text(name[0]))
        return found


class Tape(RunningHandle):
    """One run of a module that can be gone back through once."""

    __slots__ = ("_n_inputs",)
    _destroy = "nxd_tape_destroy"
    _library = engine

    def __init__(self, pointer: Any, module: Module, num_inputs: int) -> None:
        super().__init__(pointer, kept=module)
        self._n_inputs = num_inputs

    def backward(self, *grad_outputs: Tensor | None) -> list[Tensor | None]:
        """Adds to the parameters' gradients, and gives those of the inputs.
        [collective: the groups of the module's layers]"""
        out = ffi.new("nxd_tensor_t*[]", self._n_inputs or 1)
        with self._running():
            check(told_row("nxd_tensor_t", grad_outputs,
                           lambda row, count: engine.nxd_tape_backward(
                               self.pointer, row, count, out, self._n_inputs)))
        return [_own(out[i]) for i in range(self._n_inputs)]


@callback("nxd_forward_fn")
def _forward(_: Any, inputs: Any, num_inputs: int, outputs: Any, num_outputs: int, held: Any) -> None:
    module = ffi.from_handle(held)()
    if module is None:
        raise InvalidState("nothing in Python refers to the module of this forward any more")
    results = module.forward(*inputs_of(inputs, num_inputs))
    give(results, outputs, num_outputs, f"{type(module).__name__}.forward")


@callback("nxd_grad_hook_fn")
def _grad_hook(_: Any, held: Any) -> None:
    ffi.from_handle(held)()


@callback("nxd_pad_hook_fn")
def _pad_hook(module: Any, num_heads: int, num_padded_heads: int, held: Any) -> None:
    known, hook = ffi.from_handle(held)
    hook(known[int(ffi.cast("intptr_t", module))], num_heads, num_padded_heads)


@callback("nxd_initializer_fn")
def _initial_values(name: Any, shape: Any, ndim: int, first: int, values: Any, count: int,
                    held: Any) -> None:
    sizes = tuple(shape[i] for i in range(ndim))
    room = memoryview(ffi.buffer(values, count * 8)).cast("B").cast("d")
    ffi.from_handle(held)(text(name), sizes, first, room)
