"""Batches from files of token ids or of text, for data-parallel ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nxd import _arrays
from nxd._handle import Handle, Struct, c_path, get, texts, whole
from nxd.enums import DType
from nxd.errors import InvalidArgument, check
from nxd.group import collective
from nxd.raw import core, ffi

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import DataLoaderOptions
    from nxd.context import Context


class DataLoader(Handle):
    """Reads ahead on a thread: every sample once an epoch over all data-parallel ranks, in an order
    that no number of ranks changes. Further options are those of nxd_data_loader_options_t.
    [collective: world]"""

    __slots__ = ("next_labels",)
    _destroy = "nxd_data_loader_destroy"

    def __init__(self, context: Context, paths: Sequence[str | os.PathLike[str]], batch_size: int,
                 sequence_length: int, **options: Unpack[DataLoaderOptions]) -> None:
        out = ffi.new("nxd_data_loader_t**")
        with collective(lambda: context.world):
            struct = Struct("nxd_data_loader_options_t", options)
            names = [c_path(path) for path in texts("paths", paths)]
            rooms = [ffi.new("char[]", name) for name in names]
            row = ffi.new("const char*[]", rooms or 1)
            status = core.nxd_data_loader_create(context.pointer, row, len(names),
                                                 whole(batch_size), whole(sequence_length),
                                                 struct.pointer, out)
        check(status)
        super().__init__(out[0])
        self.next_labels = bool(struct.pointer.next_labels)

    def next(self, ids: Any, labels: Any = None) -> None:
        """Takes this rank's next batches, as many as fit exactly into ids, an array of int64; with
        next_labels into labels too, which are as many."""
        memory = _arrays.buffer(ids, "ids", DType.I64)
        count, pointer, targets = memory.count, memory.pointer, None
        if labels is not None:
            targets = _arrays.buffer(labels, "labels", DType.I64)
            if targets.count != count:
                raise InvalidArgument(f"labels: expected {count}, got {targets.count}")
        check(core.nxd_data_loader_next(self.pointer, pointer,
                                        ffi.NULL if targets is None else targets.pointer, count))
        _arrays.mark_written(memory, targets)

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return get("int64_t*", core.nxd_data_loader_get_sample_count, self.pointer)

    @property
    def position(self) -> int:
        """Samples that all ranks together have taken: what a checkpoint needs to keep. Once it is
        set, the loader goes on behind so many, whatever ranks and batches took them."""
        return get("int64_t*", core.nxd_data_loader_get_position, self.pointer)

    @position.setter
    def position(self, samples: int) -> None:
        check(core.nxd_data_loader_set_position(self.pointer, whole(samples)))
