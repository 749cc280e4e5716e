"""All that a training run goes on from, saved and loaded by one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nxd._handle import Handle, c_path, c_text, get, told, whole
from nxd.checkpoint import read_text
from nxd.errors import check
from nxd.raw import core, engine

if TYPE_CHECKING:
    from nxd.checkpoint import Checkpoint
    from nxd.context import Context
    from nxd.data import DataLoader
    from nxd.module import Module
    from nxd.optimizer import Optimizer


class TrainingState(Handle):
    """Models, optimizers, positions of data loaders, the context's random state, and texts. It
    keeps its parts alive."""

    __slots__ = ("kept",)
    _destroy = "nxd_training_state_destroy"

    def __init__(self, context: Context) -> None:
        self.kept: list[Any] = []
        super().__init__(get("nxd_training_state_t**", core.nxd_training_state_create,
                             context.pointer), kept=self.kept)

    def add_module(self, name: str, root: Module) -> None:
        """Adds the parameters of a module, as the file NAME.safetensors."""
        check(engine.nxd_training_state_add_module(self.pointer, c_text(name), root.pointer))
        self.kept.append(root)

    def add_optimizer(self, name: str, optimizer: Optimizer) -> None:
        """Adds an optimizer, as the file NAME.safetensors."""
        check(core.nxd_training_state_add_optimizer(self.pointer, c_text(name),
                                                    optimizer.pointer))
        self.kept.append(optimizer.kept)

    def add_data_loader(self, name: str, loader: DataLoader) -> None:
        """Adds the position of a data loader, as a text of that name."""
        check(core.nxd_training_state_add_data_loader(self.pointer, c_text(name),
                                                      loader.pointer))

    def set_value(self, key: str, value: str) -> None:
        """Keeps a text, which is the same on all ranks."""
        check(core.nxd_training_state_set_value(self.pointer, c_text(key), c_text(value)))

    def value(self, key: str) -> str | None:
        """A text that was set, or that the checkpoint had which was loaded since; None where there
        is none."""
        return read_text(core.nxd_training_state_get_value, self.pointer, key)

    def save(self, directory: str, step: int, keep_last: int = 0) -> None:
        """Saves all parts as the checkpoint of a step, and keeps so many; 0: all.
        [collective: world]"""
        self._save(core.nxd_training_state_save, directory, step, keep_last)

    def save_async(self, directory: str, step: int, keep_last: int = 0) -> None:
        """The same in the background, while the program goes on. [collective: world]"""
        self._save(core.nxd_training_state_save_async, directory, step, keep_last)

    def _save(self, function: Any, directory: str, step: int, keep_last: int) -> None:
        told(c_path, directory, lambda path, *numbers: check(function(
            self.pointer, path, *numbers)), ("int64_t", step), ("int32_t", keep_last))

    def wait(self, timeout_ms: int = -1) -> None:
        """Waits until the last save_async has ended, and raises what it ended with. Timeout, with
        the work still going on, when timeout_ms has passed."""
        check(core.nxd_training_state_wait(self.pointer, whole(timeout_ms)))

    def load_newest(self, directory: str, verify: bool = True) -> int | None:
        """Loads all parts from the newest complete checkpoint, and gives its step; None, and
        nothing changed, where there is none. [collective: world]"""
        step = told(c_path, directory, lambda path, verified: get(
            "int64_t*", core.nxd_training_state_load_newest, self.pointer, path, verified),
            ("int32_t", verify))
        return step if step >= 0 else None

    def snapshot(self, checkpoint: Checkpoint) -> None:
        """Puts all parts into a checkpoint that is being written. [collective: world]"""
        check(core.nxd_training_state_snapshot(self.pointer, checkpoint.pointer))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Loads all parts from a checkpoint that was opened. [collective: world]"""
        check(core.nxd_training_state_restore(self.pointer, checkpoint.pointer))
