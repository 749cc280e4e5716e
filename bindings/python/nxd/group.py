"""Groups of ranks: collectives and messages over arrays of the caller's, waiting or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxd._arrays import Buffer, buffer, mark_written
from nxd._handle import Handle, c_text, fill, get, owned, to_enum, whole
from nxd._raw import ErrorInfo
from nxd.enums import DType, Reduce, Transport
from nxd.errors import InvalidArgument, NxdError, check, info_from, look, raise_kept
from nxd.raw import core, ffi


class _Unattended:
    """Works that nobody refers to any more, which still use their arrays. A running one is not waited
    for by a finalizer: its bound is the group's timeout. Without a lock: the collector may let go
    of one work while another is looked at."""

    def __init__(self) -> None:
        self._works: list[Any] = []
        self._exiting = False

    def let_go(self, work: Any) -> None:
        if self._exiting or self._done(work):
            ffi.release(work)
        else:
            self._works.append(work)

    def reap(self) -> None:
        for _ in range(len(self._works)):
            try:
                work = self._works.pop(0)
            except IndexError:  # another thread has reaped it
                return
            self.let_go(work)

    def exit(self) -> None:
        """Once contexts are aborted: from now on works end soon, and are waited for, so that no
        array is freed under one."""
        self._exiting = True
        self.reap()

    @staticmethod
    def _done(work: Any) -> bool:
        out = ffi.new("int32_t*")
        return look(core.nxd_work_test, work, out) != 0 or out[0] != 0


unattended = _Unattended()


_ends: set[_End] = set()


class _End:
    """The end of a Work: one that was not closed goes on. All ends that are to come are in _ends,
    since the collector ends the pointers of a cycle in any order: it would destroy the work, and
    the group that the work keeps, before it comes to the Work."""

    __slots__ = ("work", "closed")

    def __init__(self, work: Any) -> None:
        self.work, self.closed = work, False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            ffi.release(self.work)
            _ends.discard(self)

    def __call__(self, _: Any, let_go: Any = unattended.let_go,
                 discard: Any = _ends.discard) -> None:
        discard(self)
        if not self.closed:
            self.closed = True
            let_go(self.work)


class Work(Handle):
    """A call that goes on while its caller does other things; its arrays are borrowed until it is
    done. One that is dropped goes on, too, and so does that of a group that is dropped; to close
    the group ends it with Aborted. close() takes back one that has not begun, and waits for one
    that runs."""

    __slots__ = ("result", "_end")
    _destroy = "nxd_work_destroy"

    def __init__(self, pointer: Any, result: Any, kept: Sequence[Any]) -> None:
        self._end = _End(owned(pointer, core.nxd_work_destroy, kept))
        unattended.reap()
        super().__init__(pointer)
        _ends.add(self._end)
        self.result = result

    def _destroyer(self) -> Any:
        return self._end

    def close(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._end.close()
            raise_kept()

    @property
    def done(self) -> bool:
        """From any thread; wait() then returns at once."""
        return bool(get("int32_t*", look, core.nxd_work_test, self.pointer))

    def wait(self, timeout_ms: int = -1) -> Any:
        """Waits until the work is done, and gives the array it wrote. Timeout, with the work still
        going on, when timeout_ms has passed; Ctrl-C leaves the work as it is, too."""
        check(core.nxd_work_wait(self.pointer, whole(timeout_ms)))
        return self.result

    def fileno(self) -> int:
        """A descriptor that select, selectors and asyncio's add_reader find readable once the work
        is done; the work's own, until it is closed."""
        return get("int32_t*", core.nxd_work_get_descriptor, self.pointer)

    def cancel(self) -> None:
        """Takes back a work that has not begun."""
        check(core.nxd_work_cancel(self.pointer))

    @property
    def info(self) -> ErrorInfo:
        """How the work ended."""
        info = ffi.new("nxd_error_info_t*", {"struct_size": ffi.sizeof("nxd_error_info_t")})
        check(core.nxd_work_get_error_info(self.pointer, info))
        return info_from(info)


class Group(Handle):
    """An ordered set of ranks. Every rank calls the same collectives in the same order.

    Arrays are numpy's, torch's, or of anything with the buffer protocol or DLPack, in C order;
    dtype="bf16" makes 16-bit words bf16. Results go to `out`, or where there is none to the array
    itself where that has the result's size; what was written is returned. With wait=False a call
    gives a Work instead.
    """

    __slots__ = ("context", "_size")
    _destroy = "nxd_group_destroy"

    def __init__(self, pointer: Any, context: Handle, owner: Handle | None = None) -> None:
        super().__init__(pointer, owner)
        self.context = context
        self._size = 0

    def abort(self) -> None:
        """Makes every pending and later call on the group raise Aborted; from any thread. They may raise before this
        returns; close waits for it."""
        check(core.nxd_group_abort(self.pointer))

    @property
    def size(self) -> int:
        if not self._size:
            self._size = get("int32_t*", core.nxd_group_get_size, self.pointer)
        return self._size

    @property
    def rank(self) -> int:
        """This rank's place in the group."""
        return get("int32_t*", core.nxd_group_get_rank, self.pointer)

    @property
    def ranks(self) -> list[int]:
        """World ranks of the group."""
        return fill(core.nxd_group_get_ranks, "int32_t", self.pointer)

    def set_timeout(self, timeout_ms: int) -> None:
        check(core.nxd_group_set_timeout(self.pointer, whole(timeout_ms)))

    def set_next_key(self, key: int) -> None:
        """Gives the group's next call a key: ranks whose keys differ all get InvalidArgument."""
        check(core.nxd_group_set_next_key(self.pointer, whole(key)))

    @property
    def transport(self) -> Transport:
        return Transport(get("nxd_transport_t*", core.nxd_group_get_transport, self.pointer))

    def _run(self, name: str, wait: bool, arguments: tuple[Any, ...], result: Any,
             buffers: tuple[Buffer, ...]) -> Any:
        work = None if wait else ffi.new("nxd_work_t**")
        pointer, more = self.pointer, () if work is None else (work,)
        function = getattr(core, f"nxd_{name}" if wait else f"nxd_{name}_async")
        try:
            status = function(pointer, *map(whole, arguments), *more)
        except (TypeError, OverflowError) as error:
            # An argument that is no number of C: the call has not been made. A message without a
            # rank or a tag has no peer that could be told.
            if name not in ("send", "receive"):
                self.reject(name, error, wait)
            raise
        check(status)
        # A work writes them until it is done; nobody else uses them that long.
        mark_written(*buffers)
        # It keeps the group, since to destroy one ends its works.
        return result if work is None else Work(work[0], result, (pointer, *buffers))

    def _memory(self, name: str, array: Any, dtype: Any, wait: bool, peer: int = -1,
                tag: int = -1, writable: bool = True) -> Buffer:
        """The memory of the array of a message or broadcast."""
        try:
            return buffer(array, "array", dtype, writable)
        except Exception as error:
            self.reject(name, error, wait, peer, tag)
            raise

    def _pair(self, name: str, array: Any, out: Any, dtype: Any, wait: bool,
              times: tuple[int, int]) -> tuple[Buffer, Buffer, int]:
        """Memory to send and to receive, of times parts each, and the elements of one part."""
        try:
            send = buffer(array, "array", dtype, writable=out is None)
            receive = send if out is None else buffer(out, "out", dtype)
            if send.count % times[0]:
                raise InvalidArgument(f"array: expected elements that divide by the {self.size} "
                                      f"ranks of the group, got {send.count}")
            if send.count * times[1] != receive.count * times[0]:
                raise InvalidArgument(
                    f"out: expected {send.count // times[0] * times[1]} elements for an array of "
                    f"{send.count} in a group of {self.size}, got {receive.count}")
            if send.dtype is not receive.dtype:
                raise InvalidArgument(f"out: expected elements of {send.dtype.name.lower()}, got "
                                      f"{receive.dtype.name.lower()}")
            return send, receive, send.count // times[0]
        except Exception as error:
            self.reject(name, error, wait)
            raise

    def _reduction(self, name: str, op: Reduce | str, wait: bool) -> Reduce:
        try:
            return to_enum(Reduce, op)
        except NxdError as error:
            self.reject(name, error, wait)
            raise

    def reject(self, operation: str, reason: object, wait: bool = True, peer: int = -1,
               tag: int = -1) -> None:
        """Makes a call that this rank cannot make fail on its peers, with the reason, which they
        would wait for this rank otherwise. For bindings of other arrays: those of this class do so
        themselves. [collective: group]"""
        text = str(reason).replace("\0", "?").encode()
        arguments = (self.pointer, c_text(operation), whole(peer), whole(tag), text)
        if wait:
            core.nxd_group_reject(*arguments)
            return
        out = ffi.new("nxd_work_t**")
        if core.nxd_group_reject_async(*arguments, out) == 0:
            Work(out[0], None, (arguments[0],))  # goes on without anybody

    def all_reduce(self, array: Any, out: Any = None, op: Reduce | str = Reduce.SUM,
                   dtype: DType | str | None = None, wait: bool = True) -> Any:
        """Reduces the arrays of all ranks, element by element."""
        reduce = self._reduction("all_reduce", op, wait)
        send, receive, count = self._pair("all_reduce", array, out, dtype, wait, (1, 1))
        return self._run("all_reduce", wait,
                         (send.pointer, receive.pointer, count, send.dtype, reduce),
                         array if out is None else out, (send, receive))

    def all_gather(self, array: Any, out: Any, dtype: DType | str | None = None,
                   wait: bool = True) -> Any:
        """The arrays of all ranks, one behind the other."""
        send, receive, count = self._pair("all_gather", array, out, dtype, wait,
                                          (1, self.size))
        return self._run("all_gather", wait, (send.pointer, receive.pointer, count, send.dtype),
                         out, (send, receive))

    def reduce_scatter(self, array: Any, out: Any, op: Reduce | str = Reduce.SUM,
                       dtype: DType | str | None = None, wait: bool = True) -> Any:
        """This rank's part of the reduced arrays."""
        reduce = self._reduction("reduce_scatter", op, wait)
        send, receive, count = self._pair("reduce_scatter", array, out, dtype, wait,
                                          (self.size, 1))
        return self._run("reduce_scatter", wait,
                         (send.pointer, receive.pointer, count, send.dtype, reduce),
                         out, (send, receive))

    def all_to_all(self, array: Any, out: Any, dtype: DType | str | None = None,
                   wait: bool = True) -> Any:
        """The i-th part of array goes to rank i, whose part for this rank is the i-th of out."""
        send, receive, count = self._pair("all_to_all", array, out, dtype, wait,
                                          (self.size, self.size))
        return self._run("all_to_all", wait, (send.pointer, receive.pointer, count, send.dtype),
                         out, (send, receive))

    def broadcast(self, array: Any, root: int = 0, dtype: DType | str | None = None,
                  wait: bool = True) -> Any:
        """The root's array on all ranks."""
        memory = self._memory("broadcast", array, dtype, wait)
        return self._run("broadcast", wait, (memory.pointer, memory.count, memory.dtype, root),
                         array, (memory,))

    def send(self, array: Any, to: int, tag: int = 0, dtype: DType | str | None = None,
             wait: bool = True) -> Any:
        """Sends to a rank of the group, which receives with the same tag."""
        memory = self._memory("send", array, dtype, wait, to, tag, writable=False)
        return self._run("send", wait, (memory.pointer, memory.count, memory.dtype, to, tag), None,
                         (memory,))

    def receive(self, array: Any, source: int, tag: int = 0, dtype: DType | str | None = None,
                wait: bool = True) -> Any:
        """Fills the array with what a rank of the group sends with the same tag."""
        memory = self._memory("receive", array, dtype, wait, source, tag)
        return self._run("receive", wait,
                         (memory.pointer, memory.count, memory.dtype, source, tag), array,
                         (memory,))

    def barrier(self, wait: bool = True) -> Any:
        """Returns when every rank of the group has called."""
        return self._run("barrier", wait, (), None, ())

    def rendezvous(self, tag: str, payload: bytes = b"") -> list[bytes]:
        """Waits for all ranks at the place of this name, and gives what each has brought, by rank.
        [collective: group]"""
        all_ranks = ffi.new("nxd_payloads_t**")
        with collective(lambda: self):
            given = bytes(memoryview(payload))
            name = c_text(tag)
        check(core.nxd_group_rendezvous(self.pointer, name, given, len(given), all_ranks))
        data, size = ffi.new("const void**"), ffi.new("size_t*")
        found = []
        try:
            for rank in range(self.size):
                check(core.nxd_payloads_get(all_ranks[0], rank, data, size))
                found.append(bytes(ffi.buffer(data[0], size[0])))
        finally:
            core.nxd_payloads_destroy(all_ranks[0])
        return found


class collective:
    """Around what Python does with the arguments of a collective call until the library has them:
    a failure becomes the group's next call, since the peers are in it already, or about to be, and
    would wait. The group is asked for then; None: of a call that no other rank is in."""

    __slots__ = ("_group",)

    def __init__(self, group: Callable[[], Group | None]) -> None:
        self._group = group

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            group = self._group()
            if group is not None:
                group.reject("", error)
