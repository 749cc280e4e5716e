"""Shards of weights over arrays of any framework's: initial values, copies, safetensors.

dim is the dimension that ranks have parts of; None: each rank has the whole weight. Further
options are those of nxd_shard_options_t.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nxd._array_calls import Arrays, among, call, described
from nxd._handle import Struct, c_path, c_text, to_enum
from nxd.enums import Init
from nxd.raw import core

if TYPE_CHECKING:
    from nxd.context import Context


def shard_options(dim: int | None, options: Mapping[str, Any]) -> Struct:
    """The options of a shard along a dimension; None: of a whole weight."""
    if dim is not None:
        options = {**options, "dim": dim}
    return Struct("nxd_shard_options_t", options)


def shard_initialize(context: Context, name: str, init: Init | str, a: float, b: float,
                     shard: Any, dim: int | None = None, **options: int) -> None:
    """Fills a shard with the initial values that the undivided weight of that name has."""
    struct = shard_options(dim, options)
    leading = (c_text(name), to_enum(Init, init), a, b, struct.pointer)
    call(context, core.nxd_shard_initialize, leading, [], (), [("shard", shard)])


def shard_set_full(context: Context, full: Any, shard: Any, dim: int | None = None,
                   **options: int) -> None:
    """Copies this rank's part of a whole weight."""
    struct = shard_options(dim, options)
    call(context, core.nxd_shard_set_full, (), [("full", full)], (struct.pointer,),
         [("shard", shard)])


def shard_gather_full(context: Context, shard: Any, full: Any, dim: int | None = None,
                      **options: int) -> None:
    """Puts a whole weight together on every rank. [collective: tensor-parallel group]"""
    arrays = Arrays()
    with among(context):
        struct = shard_options(dim, options)
        read, written = described(arrays, [("shard", shard)], [("full", full)])
        status = core.nxd_shard_gather_full(context.pointer, *read, struct.pointer, *written)
    arrays.check(status)


def shard_load_safetensors(context: Context, path: str | os.PathLike[str], name: str, shard: Any,
                           dim: int | None = None, **options: int) -> None:
    """Reads this rank's part of a tensor, and no other bytes of it."""
    struct = shard_options(dim, options)
    leading = (c_path(path), c_text(name), struct.pointer)
    call(context, core.nxd_shard_load_safetensors, leading, [], (), [("shard", shard)])
