# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/functional.h."""

from __future__ import annotations

from typing import TypedDict

from nxd._raw.tensor_parallel import Reduction, Smoothing


class CrossEntropyOptions(TypedDict, total=False):
    """Options of nxd_parallel_cross_entropy."""

    # 0 to 1
    label_smoothing: float
    smoothing: Smoothing | str
    reduction: Reduction | str
    # 1: ignore_index counts; 0: -100
    has_ignore_index: int
    ignore_index: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_cross_entropy_options_t": {
        "smoothing": Smoothing,
        "reduction": Reduction,
    },
}
