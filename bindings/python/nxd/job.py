"""Processes started together on this host."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from nxd import errors
from nxd._handle import Handle, Struct, get, strings, texts, whole
from nxd.errors import check
from nxd.raw import core, ffi

# How long one wait in the library lasts, so that Ctrl-C comes through.
_SLICE_MS = 100


class Job(Handle):
    """Processes that end with it, or with this process."""

    __slots__ = ()
    _destroy = "nxd_job_destroy"

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all have ended. PeerLost when one failed: the others are ended then, and its
        rank and exit code are in the message. Timeout when they still run."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _SLICE_MS if end is None else int(1000 * (end - time.monotonic()))
            status = core.nxd_job_wait(self.pointer, max(0, min(_SLICE_MS, left)))
            if status == 0:
                return
            if status != errors.Timeout.status or end is not None and time.monotonic() >= end:
                raise errors.failure(status)

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Sends a signal to every process still running."""
        check(core.nxd_job_kill(self.pointer, whole(number)))

    @property
    def size(self) -> int:
        return get("int32_t*", core.nxd_job_get_size, self.pointer)

    def exit_code(self, rank: int) -> int | None:
        """Exit status, or 128 + the signal's number; None while it runs."""
        running, code = ffi.new("int32_t*"), ffi.new("int32_t*")
        check(core.nxd_job_get_exit_code(self.pointer, whole(rank), running, code))
        return None if running[0] else code[0]

    def pid(self, rank: int) -> int:
        return get("int64_t*", core.nxd_job_get_pid, self.pointer, whole(rank))


def _own_command() -> list[str]:
    command = [sys.executable, *sys.orig_argv[1:]]
    script = sys.argv[0] if sys.argv else ""
    path = getattr(sys.modules["__main__"], "__file__", None) or ""
    if (os.path.isabs(path) and os.path.basename(path) == os.path.basename(script)
            and script in command[1:]
            and not (os.path.exists(script) and os.path.samefile(script, path))):
        # The script was named in a directory that the program has left since.
        command[command.index(script, 1)] = path
    return command


def spawn(argv: Sequence[str] | None = None, num_processes: int = 0,
          omp_num_threads: int = 0) -> Job:
    """Starts a program n times, as the ranks of one world, which nxd.Context() joins. Without argv
    it is this one: the same interpreter, script and arguments."""
    if argv is None:
        if sys.argv[:1] in ([""], ["-"]):
            raise errors.InvalidArgument(
                "argv: expected a command, got None in a program that Python reads from its standard "
                "input, where ranks cannot read it again")
        argv = _own_command()
    words = texts("argv", argv)
    kept: list[Any] = []
    # The library reads a list that ends with NULL.
    array = ffi.new("const char*[]", len(words) + 1)
    strings_ = strings(words, kept)
    for i in range(len(words)):
        array[i] = strings_[i]
    options = Struct("nxd_spawn_options_t", {"num_processes": num_processes,
                                             "omp_num_threads": omp_num_threads})
    options.pointer.argv = array
    return Job(get("nxd_job_t**", core.nxd_spawn, options.pointer))
