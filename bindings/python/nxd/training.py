"""The end of a model's gradients, and weights of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nxd._handle import Struct, get, pointers
from nxd.errors import check
from nxd.raw import engine, ffi
from nxd.tensors import Tensor

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import FinishOptions
    from nxd.context import Context
    from nxd.module import Module


def finish_grads(root: Module, **options: Unpack[FinishOptions]) -> float:
    """Completes a model's gradients after backward, and gives their norm.
    [collective: tensor-, pipeline- and data-parallel groups]"""
    struct = Struct("nxd_finish_options_t", options)
    return get("double*", engine.nxd_finish_grads, root.pointer, struct.pointer)


def loss_weights(context: Context, labels: Sequence[Tensor | None], ignore_index: int = -100,
                 shifted: bool = True) -> list[float]:
    """Weights that make mean losses of microbatches add up to the mean over all valid tokens.
    [collective: the data-parallel group]"""
    out = ffi.new("double[]", len(labels) or 1)
    check(engine.nxd_loss_weights(context.pointer, pointers("nxd_tensor_t", labels), len(labels),
                                  ignore_index, shifted, out))
    return list(out[0:len(labels)])
