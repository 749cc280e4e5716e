"""Region mappings and losses over tensor-parallel ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nxd._array_calls import among
from nxd._handle import Struct, c_number, get, whole
from nxd.raw import engine
from nxd.tensors import Tensor

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import CrossEntropyOptions
    from nxd.context import Context


def _map(function: Any, context: Context, *arguments: Any) -> Tensor:
    return Tensor(get("nxd_tensor_t**", function, context.pointer, *arguments))


def _map_together(function: Any, context: Context, x: Tensor, *arguments: Any) -> Tensor:
    """A mapping that the other ranks are in."""
    with among(context):
        given = x.pointer, *(c_number("int32_t", argument) for argument in arguments)
    return _map(function, context, *given)


def copy_to_tensor_region(context: Context, x: Tensor) -> Tensor:
    """Identity; its backward sums the gradients of all ranks."""
    return _map(engine.nxd_copy_to_tensor_region, context, x.pointer)


def reduce_from_tensor_region(context: Context, x: Tensor) -> Tensor:
    """Sum over ranks; its backward is the identity. [collective: tensor-parallel group]"""
    return _map_together(engine.nxd_reduce_from_tensor_region, context, x)


def scatter_to_tensor_region(context: Context, x: Tensor) -> Tensor:
    """This rank's part of the last dimension; its backward gathers."""
    return _map(engine.nxd_scatter_to_tensor_region, context, x.pointer)


def gather_from_tensor_region(context: Context, x: Tensor) -> Tensor:
    """All ranks' parts side by side. [collective: tensor-parallel group]"""
    return _map_together(engine.nxd_gather_from_tensor_region, context, x)


def scatter_to_sequence_region(context: Context, x: Tensor, dim: int = 0) -> Tensor:
    """This rank's part of a dimension; its backward gathers."""
    return _map(engine.nxd_scatter_to_sequence_region, context, x.pointer, whole(dim))


def gather_from_sequence_region(context: Context, x: Tensor, dim: int = 0,
                                to_model_parallel: bool = True) -> Tensor:
    """All ranks' parts along a dimension. [collective: tensor-parallel group]"""
    return _map_together(engine.nxd_gather_from_sequence_region, context, x, dim, to_model_parallel)


def reduce_scatter_to_sequence_region(context: Context, x: Tensor, dim: int = 0) -> Tensor:
    """This rank's part of the sum over ranks. [collective: tensor-parallel group]"""
    return _map_together(engine.nxd_reduce_scatter_to_sequence_region, context, x, dim)


def parallel_cross_entropy(context: Context, logits: Tensor, labels: Tensor,
                           **options: Unpack[CrossEntropyOptions]) -> Tensor:
    """On logits whose vocabulary is split over ranks. [collective: tensor-parallel group]"""
    with among(context):
        struct = Struct("nxd_cross_entropy_options_t", options, engine)
        tensors = logits.pointer, labels.pointer
    return _map(engine.nxd_parallel_cross_entropy, context, *tensors, struct.pointer)


def linear_cross_entropy(context: Context, x: Tensor, weight: Tensor, labels: Tensor,
                         sequence_dim: int = -1,
                         **options: Unpack[CrossEntropyOptions]) -> Tensor:
    """Loss of the logits x weight^T, made in blocks. [collective: tensor-parallel group]"""
    with among(context):
        struct = Struct("nxd_cross_entropy_options_t", options, engine)
        tensors = x.pointer, weight.pointer, labels.pointer
        dim = c_number("int32_t", sequence_dim)
    return _map(engine.nxd_linear_cross_entropy, context, *tensors, dim, struct.pointer)
