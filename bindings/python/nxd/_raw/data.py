# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/data.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from nxd._raw.base import Toggle


class TokenFormat(IntEnum):
    """The elements of token files, which have no header."""

    INVALID = -1
    # BYTES where paths end in .txt, UINT32 where they end in .u32, else UINT16; paths of several
    # are rejected
    DEFAULT = 0
    # ids of 16 bits, little-endian
    UINT16 = 1
    # ids of 32 bits, little-endian
    UINT32 = 2
    # text: each byte is an id from 0 to 255
    BYTES = 3


class DataLoaderOptions(TypedDict, total=False):
    """How a loader reads. All fields are the same on all ranks."""

    # 0: ids are not checked. Else an id that is not below it is CORRUPT, when it is read
    vocab_size: int
    # of the order of samples; has_seed 0: the context's
    seed: int
    has_seed: int
    format: TokenFormat | str
    # default on: each epoch has an order of its own, that of nxd_sample_epoch for one rank; off:
    # the order of the files
    shuffle: bool | Toggle | None
    # 1: nxd_data_loader_next gives labels too, which are the ids one place on. Models of libnxd
    # want none: they shift their labels, which are the ids themselves
    next_labels: int
    # batches that are read ahead; 0: 2; at most 1024
    prefetch: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_data_loader_options_t": {
        "format": TokenFormat,
        "shuffle": Toggle,
    },
}
