"""Checkpoints: directories of files that appear at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nxd._handle import Handle, c_path, c_text, get, text, told, told_number, whole
from nxd.errors import check
from nxd.raw import core, ffi

if TYPE_CHECKING:
    from nxd.context import Context


def _read(function: Callable[..., int], pointer: Any, key: str) -> Any:
    """The room that a getter has filled for a key; None where it gives nothing."""
    name = c_text(key)
    needed = get("size_t*", function, pointer, name, ffi.NULL, 0)
    if needed == 0:
        return None
    room = ffi.new("char[]", needed)
    check(function(pointer, name, room, needed, ffi.new("size_t*")))
    return room


def read_text(function: Callable[..., int], pointer: Any, key: str) -> str | None:
    """A text of a getter that gives nothing where there is none."""
    room = _read(function, pointer, key)
    return None if room is None else text(room)


class Checkpoint(Handle):
    """A checkpoint that is being written (create), or was opened to be read (open, open_newest).

    Closing one that was not published removes it; one that is being published is waited for."""

    __slots__ = ()
    _destroy = "nxd_checkpoint_destroy"

    @classmethod
    def create(cls, ctx: Context, directory: str, step: int) -> Checkpoint:
        """Begins the checkpoint of a step. [collective: world]"""
        return cls(told(c_path, directory, lambda path, number: get(
            "nxd_checkpoint_t**", core.nxd_checkpoint_create, ctx.pointer, path, number),
            ("int64_t", step)))

    @classmethod
    def open(cls, ctx: Context, directory: str, step: int, verify: bool = True) -> Checkpoint:
        """Opens that of a step. [collective: world]"""
        return cls(told(c_path, directory, lambda path, number, verified: get(
            "nxd_checkpoint_t**", core.nxd_checkpoint_open, ctx.pointer, path, number, verified),
            ("int64_t", step), ("int32_t", verify)))

    @classmethod
    def open_newest(cls, ctx: Context, directory: str, verify: bool = True) -> Checkpoint | None:
        """Opens the newest complete one; None where there is none. [collective: world]"""
        out = told(c_path, directory, lambda path, verified: get(
            "nxd_checkpoint_t**", core.nxd_checkpoint_open_newest, ctx.pointer, path, verified),
            ("int32_t", verify))
        return cls(out) if out != ffi.NULL else None

    @property
    def step(self) -> int:
        return get("int64_t*", core.nxd_checkpoint_get_step, self.pointer)

    def path(self, name: str) -> str:
        """Where a file of the checkpoint is to be written, or lies."""
        # Whatever bytes the file system has, as c_path takes them.
        return os.fsdecode(ffi.string(_read(core.nxd_checkpoint_get_path, self.pointer, name)))

    def set_value(self, key: str, value: str) -> None:
        """Keeps a text with the checkpoint."""
        check(core.nxd_checkpoint_set_value(self.pointer, c_text(key), c_text(value)))

    def value(self, key: str) -> str | None:
        """A text that was kept with the checkpoint; None where there is none."""
        return read_text(core.nxd_checkpoint_get_value, self.pointer, key)

    def publish(self, keep_last: int = 0) -> None:
        """Completes the checkpoint, and keeps so many; 0: all. [collective: world]"""
        told_number(keep_last, lambda count: check(core.nxd_checkpoint_publish(
            self.pointer, count)))

    def publish_async(self, keep_last: int = 0) -> None:
        """The same in the background, while the program goes on. [collective: world]"""
        told_number(keep_last, lambda count: check(core.nxd_checkpoint_publish_async(
            self.pointer, count)))

    @property
    def done(self) -> bool:
        """True when publish_async has ended, well or not."""
        return bool(get("int32_t*", core.nxd_checkpoint_test, self.pointer))

    def wait(self, timeout_ms: int = -1) -> None:
        """Waits until publish_async has ended, and raises what it ended with. Timeout, with the
        work still going on, when timeout_ms has passed."""
        check(core.nxd_checkpoint_wait(self.pointer, whole(timeout_ms)))

    def restore_random_state(self) -> None:
        """The context's random bits continue where those of the checkpoint's writer did."""
        check(core.nxd_checkpoint_restore_random_state(self.pointer))
