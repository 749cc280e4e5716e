# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/serialization.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from nxd._raw.base import Toggle


class SaveOptions(TypedDict, total=False):
    """Options of nxd_save and nxd_serialization_save."""

    # default on; off: each rank writes, at a path of its own
    master_only: bool | Toggle | None
    # 1: the first rank of each host writes; 0: that of the world
    each_host: int
    # num_values names of texts; copied
    keys: Sequence[str]
    # num_values texts, such as {"1200"}
    values: Sequence[str]
    num_values: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_save_options_t": {
        "master_only": Toggle,
    },
}
