"""The end of a model's gradients, and weights of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nxd._handle import pointers, whole
from nxd.data_parallel import finish
from nxd.errors import check
from nxd.group import collective
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
    out = ffi.new("double*")
    check(finish(engine.nxd_finish_grads, root.pointer, options, out))
    return out[0]


def loss_weights(context: Context, labels: Sequence[Tensor | None], ignore_index: int = -100,
                 shifted: bool = True) -> list[float]:
    """Weights that make mean losses of microbatches add up to the mean over all valid tokens.
    [collective: the data-parallel group]"""
    with collective(lambda: context.data_group):
        out = ffi.new("double[]", len(labels) or 1)
        status = engine.nxd_loss_weights(context.pointer, pointers("nxd_tensor_t", labels),
                                         len(labels), whole(ignore_index), whole(shifted), out)
    check(status)
    return list(out[0:len(labels)])
