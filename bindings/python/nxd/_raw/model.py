# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/model.h."""

from __future__ import annotations

from typing import TypedDict

from nxd._raw.base import DType, Device


class ModelOptions(TypedDict, total=False):
    """Options of nxd_model_create."""

    # of the parameters: F32 (0), F64, BF16
    dtype: DType | str
    device: Device | str
    # 1: norms and residuals on slices of the sequence
    sequence_parallel: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_model_options_t": {
        "dtype": DType,
        "device": Device,
    },
}
