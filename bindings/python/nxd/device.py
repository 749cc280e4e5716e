"""The recorded device: operators recorded on device XLA, and a step run as one graph."""

from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nxd._handle import EngineHandle, Struct, drop_user_data, fill, get, read_struct, report, \
    to_enum, user_data, whole
from nxd.autograd import give
from nxd.data import DataLoader
from nxd.enums import Device, GraphFormat
from nxd.errors import InvalidState, callback, check, status_of
from nxd.raw import engine, ffi
from nxd.tensors import Tensor

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import DeviceLoaderOptions


class DeviceMetrics(NamedTuple):
    """Counts of device XLA in this process, on all threads."""

    recorded: int
    steps: int
    graphs: int
    compiles: int
    cache_hits: int
    executions: int
    implicit_syncs: int
    fallbacks: int
    compile_seconds: float
    execute_seconds: float
    loads: int
    load_seconds: float
    argument_bytes: int
    result_bytes: int
    copied_bytes: int


def mark_step(wait: bool = True) -> None:
    """Ends a step: runs what this thread has recorded as one graph, then its step closures.

    Without wait the graph runs while this thread goes on: the next call that needs its values
    waits, and raises what this one would have."""
    check(engine.nxd_mark_step(whole(wait)))


@callback("nxd_step_closure_fn")
def _closure(held: Any) -> None:
    ffi.from_handle(held)()


@callback("nxd_step_closure_fn", apart=True)
def _closure_apart(held: Any) -> None:
    ffi.from_handle(held)()


def add_step_closure(closure: Callable[[], None]) -> None:
    """Has closure() called once by this thread's next mark_step(), when the graph has run."""
    with user_data.given(closure) as held:
        check(engine.nxd_add_step_closure(_closure, held, drop_user_data))


class _Batches:
    """An iterable that the thread of a loader reads. Its exception is kept for the call of the
    program's that reports it."""

    def __init__(self, batches: Iterable[Tensor | Sequence[Tensor]]) -> None:
        self.iterator = iter(batches)
        self.exception: BaseException | None = None
        # The thread that reads, while it does.
        self.reader: int | None = None

    def read(self, room: Any, num_tensors: int, out_end: Any) -> None:
        self.reader = threading.get_ident()
        try:
            give(next(self.iterator), room, num_tensors, "a batch")
        except StopIteration:
            out_end[0] = 1
        except BaseException as exception:
            self.exception = exception
            raise
        finally:
            self.reader = None

    def is_reader(self) -> bool:
        """True on the loader's thread, within the iterable."""
        return self.reader == threading.get_ident()

    def check(self, status: int) -> None:
        # One raised ahead waits until the batches before it have been taken.
        if self.exception is not None and status == status_of(self.exception):
            exception, self.exception = self.exception, None
            raise exception


def add_step_closure_async(closure: Callable[[], None]) -> None:
    """The same on a thread of the library's, while this one goes on. If it raises, the next
    mark_step() or wait_step_closures() raises UserError."""
    atexit.unregister(wait_step_closures)
    with user_data.given(closure) as held:
        check(engine.nxd_add_step_closure_async(_closure_apart, held, drop_user_data))
    # No thread can run Python once the interpreter ends.
    atexit.register(wait_step_closures)


def wait_step_closures() -> None:
    """Returns when the closures of this thread's steps that run on the other thread have run."""
    check(engine.nxd_wait_step_closures())


class DeviceLoader(EngineHandle):
    """Batches moved to a device by a thread, ahead of the steps that take them: those of a
    DataLoader, or tensors, or tuples of num_tensors of them, from any iterable. To take one marks
    the step before, as mark_step() does, after batches_per_execution of them.

    A DataLoader gives the ids, or with next_labels ids and labels, and has no end. Close the loader,
    or use it in a with block: another thread is iterating as long as it is open.
    """

    __slots__ = ("_width", "_batches")
    _destroy = "nxd_device_loader_destroy"

    def __init__(self, batches: DataLoader | Iterable[Tensor | Sequence[Tensor]],
                 device: Device | str = Device.XLA, num_tensors: int = 1,
                 **options: Unpack[DeviceLoaderOptions]) -> None:
        struct = Struct("nxd_device_loader_options_t", options, engine)
        where = to_enum(Device, device)
        out = ffi.new("nxd_device_loader_t**")
        self._batches: _Batches | None = None
        self._width = num_tensors = whole(num_tensors)
        if isinstance(batches, DataLoader):
            self._width = 2 if batches.next_labels else 1
            check(engine.nxd_device_loader_create(batches.pointer, where, struct.pointer, out))
        else:
            self._batches = _Batches(batches)
            with user_data.given(self._batches) as held:
                check(engine.nxd_device_loader_create_callback(
                    _read_batch, held, drop_user_data, num_tensors, where, struct.pointer, out))
        super().__init__(out[0])
        if self._batches is not None:
            _open_loaders.add(self)

    def _destroyer(self) -> Any:
        destroy = super()._destroyer()
        return destroy if self._batches is None else functools.partial(_end, self._batches, destroy)

    def _refuse_reader(self) -> None:
        """The loader's thread would wait for itself."""
        if self._batches is not None and self._batches.is_reader():
            raise InvalidState("a DeviceLoader cannot be taken from or closed by the iterable that "
                               "it reads")

    def close(self) -> None:
        self._refuse_reader()
        super().close()

    def __iter__(self) -> DeviceLoader:
        return self

    def __next__(self) -> Tensor | tuple[Tensor, ...]:
        """One tensor, or a tuple of several."""
        self._refuse_reader()
        room, end = ffi.new("nxd_tensor_t*[]", self._width), ffi.new("int32_t*")
        status = engine.nxd_device_loader_next(self.pointer, room, self._width, end)
        if self._batches is not None:
            self._batches.check(status)
        check(status)
        if end[0]:
            raise StopIteration
        tensors = tuple(Tensor(room[i]) for i in range(self._width))
        return tensors[0] if self._width == 1 else tensors

    @property
    def position(self) -> int:
        """Where the DataLoader stands behind the last batch that was taken: what a checkpoint needs
        to keep. Once it is set, the loader goes on there. For other batches, how many were taken."""
        return get("int64_t*", engine.nxd_device_loader_get_position, self.pointer)

    @position.setter
    def position(self, samples: int) -> None:
        check(engine.nxd_device_loader_set_position(self.pointer, whole(samples)))


def _end(batches: _Batches, destroy: Callable[[Any], None], loader: Any) -> None:
    """The end of a loader, whose last reference may be dropped on its own thread, by the collector
    as well: another one waits for that then."""
    if batches.is_reader():
        threading.Thread(target=destroy, args=(loader,), daemon=False).start()
    else:
        destroy(loader)


_open_loaders: weakref.WeakSet[DeviceLoader] = weakref.WeakSet()


@atexit.register
def _close_loaders() -> None:
    """Their threads run Python, which they cannot once the interpreter ends."""
    for loader in list(_open_loaders):
        loader.close()


@callback("nxd_read_batch_fn", apart=True)
def _read_batch(room: Any, num_tensors: int, out_end: Any, held: Any) -> None:
    ffi.from_handle(held).read(room, num_tensors, out_end)


def device_metrics() -> DeviceMetrics:
    counts = report("nxd_device_metrics_t")
    check(engine.nxd_device_get_metrics(counts))
    return read_struct(DeviceMetrics, counts)


def reset_device_metrics() -> None:
    check(engine.nxd_device_reset_metrics())


def _copied(characters: list[Any]) -> str:
    return b"".join(characters[:-1]).decode()


def device_report() -> str:
    """The counts as text, and each operator that made an implicit sync or fell back."""
    return _copied(fill(engine.nxd_device_get_report, "char"))


def step_graph(format: GraphFormat | str = GraphFormat.TEXT) -> str:
    """The graph of the last step that this thread has marked."""
    return _copied(fill(engine.nxd_device_get_step_graph, "char", to_enum(GraphFormat, format)))
