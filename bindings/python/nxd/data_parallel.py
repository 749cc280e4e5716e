"""Data parallelism and ZeRO-1, over arrays of the caller's or a module's parameters."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from nxd import _arrays
from nxd._handle import Handle, Struct, get, strings, text, texts, to_enum, whole
from nxd.enums import Placement
from nxd.errors import InvalidArgument, check
from nxd.group import collective
from nxd.raw import core, engine, ffi
from nxd.weights import shard_options

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import DdpOptions, FinishOptions
    from nxd.context import Context
    from nxd.group import Group


class Ddp(Handle):
    """Reduces the gradients of a set of parameters over a group, in buckets."""

    __slots__ = ("kept", "_index")
    _destroy = "nxd_ddp_destroy"

    def __init__(self, pointer: Any, kept: Any) -> None:
        super().__init__(pointer, kept=kept)
        # Shared with optimizers over it, which use the same arrays.
        self.kept = kept
        self._index: dict[str, int] = {}

    @classmethod
    def over_arrays(cls, context: Context, params: Mapping[str, Any], grads: Mapping[str, Any],
                    group: Group | None = None, dtype: Any = None,
                    **options: Unpack[DdpOptions]) -> Ddp:
        """Over arrays by name, in the order of use: without gaps, in C order or, as their
        gradients, in another order of dimensions, such as channels last. They are updated and
        reduced in place, and stay alive as long as the Ddp and its optimizers. dtype="bf16" makes
        16-bit words of params bf16; those of gradients are. [collective: the group]"""
        kept: list[Any] = []
        out = ffi.new("nxd_ddp_t**")
        with collective(lambda: context.data_group if group is None else group):
            names = list(params)
            if list(grads) != names:
                raise InvalidArgument(f"grads: expected an array for each of {names}, in this "
                                      f"order, got {list(grads)}")
            memory = [_arrays.buffer(a, f"params[{n!r}]", dtype, any_strides=True)
                      for n, a in params.items()]
            sums = [_arrays.strided(a, f"grads[{n!r}]", writable=True)
                    for n, a in grads.items()]
            described = [[_arrays.dltensor(b) for b in buffers] for buffers in (memory, sums)]
            tensors = [ffi.new("DLTensor*[]", [d[0] for d in row] or 1) for row in described]
            struct = Struct("nxd_ddp_options_t", options)
            status = core.nxd_ddp_create_buffers(
                context.pointer, ffi.NULL if group is None else group.pointer,
                strings(names, kept), tensors[0], tensors[1], len(names), struct.pointer, out)
        check(status)
        return cls(out[0], [memory, sums])

    @classmethod
    def over_module(cls, root: Any, **options: Unpack[DdpOptions]) -> Ddp:
        """Over the trainable parameters of a module. [collective: the data-parallel group]"""
        with collective(lambda: root.context.data_group):
            struct = Struct("nxd_ddp_options_t", options)
        out = ffi.new("nxd_ddp_t**")
        check(engine.nxd_ddp_create(root.pointer, struct.pointer, out))
        return cls(out[0], [root.kept])

    def __len__(self) -> int:
        return get("size_t*", core.nxd_ddp_get_count, self.pointer)

    def __bool__(self) -> bool:
        """True also of a rank without parameters, whose ddp is one all the same."""
        return True

    @property
    def names(self) -> list[str]:
        out = ffi.new("const char**")
        names = []
        for index in range(len(self)):
            check(core.nxd_ddp_get_name(self.pointer, index, out))
            names.append(text(out[0]))
        return names

    def _place(self, name: str) -> int:
        if not self._index:
            self._index = {n: i for i, n in enumerate(self.names)}
        if name not in self._index:
            raise InvalidArgument(f"no parameter {name!r}; there are {list(self._index)}")
        return self._index[name]

    def set_placements(self, placements: Mapping[str, Placement | str | int],
                       tied: Iterable[str] = ()) -> None:
        """Says how each parameter is a part of a model: the dimension that tensor-parallel ranks
        have parts of, or a Placement, of dimension 0 if it is SHARDED; tied are those that another
        pipeline stage has too, and counts in norms. Norms, clipping and saved states are then those
        of the undivided model.
        [collective: tensor-, pipeline- and data-parallel groups]"""
        names = self.names
        try:
            tied = set(texts("tied", tied))
            if set(placements) != set(names) or not tied <= set(names):
                raise InvalidArgument(f"placements: expected one for each of {names}, and tied "
                                      f"ones among these, got {list(placements)} and {list(tied)}")
            held = [_placement(name, placements[name]) for name in names]
        except Exception:
            # All ranks are in the call: one of no parameter makes it fail on them.
            core.nxd_ddp_set_placements(self.pointer, ffi.NULL, ffi.NULL, ffi.NULL, len(names) + 1)
            raise
        kinds, dims = [kind for kind, _ in held], [dim for _, dim in held]
        shared = [int(name in tied) for name in names]
        check(core.nxd_ddp_set_placements(self.pointer, kinds, dims, shared, len(names)))

    def set_shards(self, shards: Mapping[str, Mapping[str, int] | None],
                   partial_grads: Iterable[str] = (), tied: Iterable[str] = ()) -> None:
        """set_placements for parameters that ranks hold other parts of than equal consecutive ones:
        the arguments by which shard_initialize fills each array, such as {"dim": 0, "size": 50257}
        or {"dim": 0, "num_fused": 2}; None: each rank has the whole parameter. The gradients of
        partial_grads are summed over the ranks that hold the same elements; those of tied count on
        another pipeline stage. [collective: tensor-, pipeline- and data-parallel groups]"""
        names = self.names
        try:
            partial_grads, tied = (
                set(texts("partial_grads", partial_grads)), set(texts("tied", tied)))
            for given in (*partial_grads, *tied):
                self._place(given)
            if set(shards) != set(names):
                raise InvalidArgument(f"shards: expected one for each of {names}, got "
                                      f"{list(shards)}")
            options = [None if (known := shards[name]) is None else
                       shard_options(known.get("dim"), known) for name in names]
        except Exception:
            # All ranks are in the call: one of no parameter makes it fail on them.
            core.nxd_ddp_set_shards(self.pointer, ffi.NULL, ffi.NULL, ffi.NULL, len(names) + 1)
            raise
        pointers = ffi.new("nxd_shard_options_t*[]",
                           [ffi.NULL if o is None else o.pointer for o in options] or 1)
        check(core.nxd_ddp_set_shards(self.pointer, pointers, [n in partial_grads for n in names],
                                      [n in tied for n in names], len(names)))

    def mark_ready(self, name: str) -> None:
        """Says that a gradient is complete: reduction may overlap what follows.
        [collective: the group]"""
        check(core.nxd_ddp_mark_ready(self.pointer, self._place(name)))

    def mark_unused(self, name: str) -> None:
        """Says that a parameter took no part in this step on this rank. [collective: the group]"""
        check(core.nxd_ddp_mark_unused(self.pointer, self._place(name)))

    def rebind(self, name: str, param: Any = None, grad: Any = None) -> None:
        """Says that an array has moved; None: as before."""
        index = self._place(name)
        found = [None if a is None else _arrays.strided(a, label, writable=True)
                 for a, label in ((param, "param"), (grad, "grad"))]
        described = [(ffi.NULL, None) if b is None else _arrays.dltensor(b) for b in found]
        check(core.nxd_ddp_rebind(self.pointer, index, described[0][0], described[1][0]))
        for row, memory in zip(self.kept, found):
            if memory is not None:
                row[index] = memory

    def set_sync(self, on: bool) -> None:
        """Off for all microbatches of a step but the last."""
        check(core.nxd_ddp_set_sync(self.pointer, whole(on)))

    def mark_reloaded(self) -> None:
        """Says that the arrays hold the values of one step again."""
        check(core.nxd_ddp_mark_reloaded(self.pointer))

    @property
    def buffer_bytes(self) -> int:
        """Bytes held beside parameters and gradients."""
        return get("uint64_t*", core.nxd_ddp_get_buffer_bytes, self.pointer)

    def finish(self, **options: Unpack[FinishOptions]) -> float:
        """Completes the gradients, and gives their norm.
        [collective: tensor-, pipeline- and data-parallel groups]"""
        out = ffi.new("double*")
        check(finish(core.nxd_ddp_finish, self.pointer, options, out))
        return out[0]


def _placement(name: str, given: Placement | str | int) -> tuple[Placement, int]:
    if isinstance(given, (Placement, str)):
        return to_enum(Placement, given), 0
    if hasattr(given, "__index__") and not isinstance(given, (Enum, bool)):
        dim = operator.index(given)
        if -2**31 <= dim < 2**31:
            return Placement.SHARDED, dim
    raise InvalidArgument(f"placements[{name!r}]: expected a dimension or a Placement, got "
                          f"{given!r}")


def finish(function: Callable[..., int], pointer: Any, options: Mapping[str, Any],
           *outputs: Any) -> int:
    """A call that completes gradients over several groups of ranks."""
    try:
        struct = Struct("nxd_finish_options_t", options)
    except Exception:
        # The peers are in the call already, or about to be: options that no rank takes make it
        # fail in all groups.
        none = Struct("nxd_finish_options_t", {"scale": math.nan})
        function(pointer, none.pointer, *outputs)
        raise
    return function(pointer, struct.pointer, *outputs)


def sample_epoch(num_samples: int, ranks: int, rank: int, epoch: int, seed: int = 0,
                 shuffle: bool = True, drop_last: bool = False) -> list[int]:
    """Which samples a data-parallel rank takes in an epoch."""
    arguments = [*map(whole, (num_samples, ranks, rank, epoch, seed, shuffle, drop_last))]
    count = ffi.new("size_t*")
    check(core.nxd_sample_epoch(*arguments, ffi.NULL, 0, count))
    room = ffi.new("int64_t[]", count[0] or 1)
    check(core.nxd_sample_epoch(*arguments, room, count[0], count))
    return list(room[0:count[0]])
