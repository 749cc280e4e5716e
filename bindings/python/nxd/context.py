"""Contexts: one rank, its groups and its failure state; and the layout of ranks over them."""

from __future__ import annotations

import atexit
import json
import math
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nxd import _arrays
from nxd._handle import Handle, Struct, c_text, fill, get, to_enum, whole
from nxd.enums import Axis, Device, DType, Rendezvous, Transport
from nxd.errors import InvalidArgument, callback, check
from nxd.group import Group, collective, unattended
from nxd.raw import core, ffi
from nxd.store import Store

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import ContextOptions, ParallelOptions

# How long a thread may take to return from an aborted call.
_RETURN_S = 0.1

_living: weakref.WeakSet[Context] = weakref.WeakSet()


@callback("nxd_interrupt_fn")
def _interrupted(_: Any) -> None:
    """Asked while a call waits. Entering Python is all it takes: that is where the handlers of
    signals run, and what Ctrl-C's raises becomes the failure of the call."""


@atexit.register
def _abort_all() -> None:
    """Brings daemon threads back that still wait in the library, before Python ends under them: a
    thread that then asks for the interpreter from inside of a callback would be unwound through
    C++."""
    waiting = [c for c in list(_living) if not c.closed and not c.finalized]
    for context in waiting:
        core.nxd_context_abort(context.pointer)  # which a forked child is refused
    if waiting and threading.active_count() > 1:
        time.sleep(_RETURN_S)
    unattended.exit()


class Context(Handle):
    """One rank of a world: that of torchrun, nxdrun, mpirun, srun or nxd.spawn, or, with store,
    rank and size, of ranks that meet at a store. [collective: world]

    A with block that ends well finalizes, so that all ranks leave together; one that ends with an
    exception leaves at once, and peers that wait for this rank get PeerLost.
    """

    __slots__ = ("finalized", "_along_axes", "_store")
    _destroy = "nxd_context_destroy"

    def __init__(  # type: ignore[misc]  # store, rank and size are options, too
            self, store: Store | None = None, rank: int | None = None, size: int | None = None,
            **options: Unpack[ContextOptions]) -> None:
        given: dict[str, Any] = {**options}
        way = to_enum(Rendezvous, given.get("rendezvous", Rendezvous.ENVIRONMENT))
        if way is Rendezvous.STORE or (store, rank, size) != (None, None, None):
            if way is not Rendezvous.STORE and "rendezvous" in given:
                raise InvalidArgument(f"store, rank, size: expected none with rendezvous "
                                      f"{way.name.lower()}, got {store}, {rank} and {size}")
            given.update(rendezvous=Rendezvous.STORE, store=store,
                         rank=0 if rank is None else rank,
                         size=1 if size is None else size)
        if threading.current_thread() is threading.main_thread():
            # Only the main thread runs the handlers of signals.
            given.setdefault("interrupt", _interrupted)
        try:
            struct = Struct("nxd_context_options_t", given)
        except Exception:
            self._refuse_world(given)
            raise
        super().__init__(get("nxd_context_t**", core.nxd_context_create, struct.pointer))
        self.finalized = False
        # Groups that are borrowed from the layout; they keep the context, and it does not keep them.
        self._along_axes: weakref.WeakSet[Group] = weakref.WeakSet()
        self._store = store
        _living.add(self)

    @staticmethod
    def _refuse_world(given: Mapping[str, Any]) -> None:
        """Makes the contexts of the other ranks fail, which wait for this one, where an option is
        none: by those that say which rank it is, and a transport that is none."""
        place = {name: given[name] for name in ("rendezvous", "store", "rank", "size", "interrupt")
                 if name in given}
        with suppress(Exception):
            struct = Struct("nxd_context_options_t", {**place, "transport": Transport.INVALID})
            check(core.nxd_context_create(struct.pointer, ffi.new("nxd_context_t**")))

    def __exit__(self, *raised: object) -> None:
        try:
            if raised[0] is None and not self.closed and not self.finalized:
                self.finalize()
        finally:
            self.close()

    def finalize(self) -> None:
        """Waits for this rank's works and for all ranks, then disconnects. [collective: world]"""
        check(core.nxd_context_finalize(self.pointer))
        self.finalized = True

    def abort(self) -> None:
        """Makes every pending and later collective raise Aborted; from any thread."""
        check(core.nxd_context_abort(self.pointer))

    @property
    def rank(self) -> int:
        return get("int32_t*", core.nxd_context_get_rank, self.pointer)

    @property
    def size(self) -> int:
        return get("int32_t*", core.nxd_context_get_size, self.pointer)

    @property
    def local_rank(self) -> int:
        return get("int32_t*", core.nxd_context_get_local_rank, self.pointer)

    @property
    def world(self) -> Group:
        """The group of all ranks."""
        borrowed = get("nxd_group_t**", core.nxd_context_get_world_group, self.pointer)
        return Group(borrowed, self, owner=self)

    def group(self, ranks: list[int], name: str | None = None) -> Group:
        """Makes a group of some ranks. [collective: the listed ranks]"""
        try:
            count = len(ranks)
            members = ffi.new("int32_t[]", [whole(rank) for rank in ranks] or 1)
            label = c_text(name) if name is not None else ffi.NULL
        except Exception:
            self._refuse_group(ranks)
            raise
        return Group(get("nxd_group_t**", core.nxd_group_create, self.pointer, members, count, label),
                     self)

    def _refuse_group(self, ranks: Any) -> None:
        """Makes a group fail on its other ranks, which wait for this one: as many as can be read
        of a list that is none, or else all."""
        known = []
        try:
            for rank in ranks:
                try:
                    known.append(int(rank))
                except (TypeError, ValueError):
                    continue
        except TypeError:
            pass
        told = set(known) & set(range(self.size))
        if not told - {self.rank}:
            told = set(range(self.size))
        # The library tells them all of a list that begins with -1, and that it cannot be read.
        core.nxd_group_create(self.pointer, [-1, *told], len(told) + 1, ffi.NULL,
                              ffi.new("nxd_group_t**"))

    @property
    def plain_kernels(self) -> bool:
        """True if layers run through plain ATen operators."""
        return bool(get("int32_t*", core.nxd_context_get_plain_kernels, self.pointer))

    @plain_kernels.setter
    def plain_kernels(self, plain: bool) -> None:
        check(core.nxd_context_set_plain_kernels(self.pointer, whole(plain)))

    def set_step(self, step: int, microbatch: int = 0) -> None:
        """The step and microbatch that random bits are drawn for."""
        check(core.nxd_context_set_step(self.pointer, whole(step), whole(microbatch)))

    @property
    def step(self) -> tuple[int, int]:
        """The step and microbatch that random bits are drawn for."""
        step, microbatch = ffi.new("int64_t*"), ffi.new("int64_t*")
        check(core.nxd_context_get_step(self.pointer, step, microbatch))
        return step[0], microbatch[0]

    def flight_record(self) -> dict[str, Any]:
        """The last collectives and messages of each group, and what they wait for; from any
        thread."""
        needed = ffi.new("size_t*")
        check(core.nxd_context_get_flight_record(self.pointer, ffi.NULL, 0, needed))
        room = ffi.new("char[]", 2 * needed[0] + 4096)
        check(core.nxd_context_get_flight_record(self.pointer, room, len(room), needed))
        return json.loads(ffi.string(room))

    def master_print(self, line: str) -> None:
        """Writes a line to stdout on world rank 0."""
        check(core.nxd_master_print(self.pointer, c_text(line)))

    # Memory that ranks of one host share.

    def arena(self, shape: tuple[int, ...], dtype: Any = "f32") -> Any:
        """A numpy array in memory that the other ranks of this host see too: collectives work on
        it in place. It is valid until free_arena, or until the context is closed; a context that
        is dropped stays as long as the array. One of bf16 has ml_dtypes' type; where that is not
        installed it refuses arithmetic and values, and has 16-bit words by .view(numpy.uint16)."""
        kind = to_enum(DType, dtype)
        shape = tuple(whole(size) for size in shape)
        if any(size < 0 for size in shape):
            raise InvalidArgument(f"shape: expected sizes of 0 or more, got {shape}")
        size = math.prod(shape) * _arrays.SIZES[kind]
        memory = get("void**", core.nxd_arena_alloc, self.pointer, size)
        # Its memory ends with the context, which the array therefore keeps.
        kept = ffi.gc(memory, lambda _, context=self: None)
        return _arrays.over_memory(kept, shape, kind)

    def free_arena(self, array: Any) -> None:
        """Takes back an array of arena()."""
        check(core.nxd_arena_free(self.pointer, _arrays.start(array)))

    # Parallel state.

    def init_model_parallel(self, **options: Unpack[ParallelOptions]) -> None:
        """Lays out the world: which ranks share tensors, stages and data. [collective: world]"""
        with collective(lambda: self.world):
            struct = Struct("nxd_parallel_options_t", options)
        check(core.nxd_init_model_parallel(self.pointer, struct.pointer))

    def destroy_model_parallel(self) -> None:
        """Forgets the layout; groups along its axes cannot be used any more."""
        check(core.nxd_destroy_model_parallel(self.pointer))
        for group in list(self._along_axes):
            group.close()

    @property
    def model_parallel(self) -> bool:
        """True if the world is laid out."""
        return bool(core.nxd_model_parallel_is_initialized(self.pointer))

    def _along(self, function: Any, axis: Axis | str) -> int:
        return get("int32_t*", function, self.pointer, to_enum(Axis, axis))

    def parallel_size(self, axis: Axis | str) -> int:
        return self._along(core.nxd_parallel_get_size, axis)

    def parallel_rank(self, axis: Axis | str) -> int:
        return self._along(core.nxd_parallel_get_rank, axis)

    def parallel_source_rank(self, axis: Axis | str) -> int:
        """World rank of the first member of this rank's group."""
        return self._along(core.nxd_parallel_get_source_rank, axis)

    def parallel_group(self, axis: Axis | str) -> Group:
        """This rank's group along an axis."""
        borrowed = get("nxd_group_t**", core.nxd_parallel_get_group, self.pointer,
                       to_enum(Axis, axis))
        group = Group(borrowed, self, owner=self)
        self._along_axes.add(group)
        return group

    def parallel_groups(self, axis: Axis | str) -> list[list[int]]:
        """The ranks of all groups along an axis."""
        size, count = ffi.new("size_t*"), ffi.new("int32_t*")
        arguments = (self.pointer, to_enum(Axis, axis))
        check(core.nxd_parallel_get_group_list(*arguments, 0, ffi.NULL, 0, size, count))
        groups = []
        for index in range(count[0]):
            ranks = ffi.new("int32_t[]", size[0])
            check(core.nxd_parallel_get_group_list(*arguments, index, ranks, size[0], size, count))
            groups.append(list(ranks))
        return groups

    @property
    def data_group(self) -> Group:
        """The data-parallel group, or the world where the world is not laid out: the group of a Ddp
        that is given none."""
        return self.parallel_group(Axis.DATA) if self.model_parallel else self.world

    @property
    def next_stage_rank(self) -> int:
        return get("int32_t*", core.nxd_parallel_get_pipeline_next_rank, self.pointer)

    @property
    def previous_stage_rank(self) -> int:
        return get("int32_t*", core.nxd_parallel_get_pipeline_previous_rank, self.pointer)


def layout_groups(world_size: int, axis: Axis | str,
                  options: Mapping[str, Any] | None = None) -> list[list[int]]:
    """The groups that a layout of so many ranks would have; no context needed."""
    struct = Struct("nxd_parallel_options_t", options or {})
    count = ffi.new("int32_t*")
    ranks, which = whole(world_size), to_enum(Axis, axis)
    check(core.nxd_layout_get_group_count(struct.pointer, ranks, which, count))
    return [fill(core.nxd_layout_get_group, "int32_t", struct.pointer, ranks, which, index)
            for index in range(count[0])]


def layout_find(world_size: int, axis: Axis | str, rank: int,
                options: Mapping[str, Any] | None = None) -> tuple[int, int]:
    """Index of the group that a rank would belong to, and its place in it."""
    struct = Struct("nxd_parallel_options_t", options or {})
    index, place = ffi.new("int32_t*"), ffi.new("int32_t*")
    check(core.nxd_layout_find_rank(struct.pointer, whole(world_size), to_enum(Axis, axis),
                                    whole(rank), index, place))
    return index[0], place[0]


def device() -> Device:
    """The device this process trains on."""
    return Device(get("nxd_device_t*", core.nxd_get_device))
