"""Tensor-parallel layers over arrays of any framework's, forward and backward; no libtorch.

Each takes the context, its arrays in order or by name, and options by keyword. Arrays are read and
written in place, in any strides. A rank whose array is bad makes the call fail on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nxd._array_calls import ArrayCall, Arrays, among, call_lists, described
from nxd._handle import to_enum, whole
from nxd.enums import RegionMapping
from nxd.raw import core

if TYPE_CHECKING:
    from nxd.context import Context

column_linear_forward = ArrayCall(
    core.nxd_column_linear_forward, core.nxd_column_linear_forward_get_workspace,
    "nxd_column_linear_options_t", "x weight bias? -> y",
    "y = x weight^T + bias, of this rank's output features.")
column_linear_backward = ArrayCall(
    core.nxd_column_linear_backward, core.nxd_column_linear_backward_get_workspace,
    "nxd_column_linear_options_t", "x weight grad_y -> grad_x? grad_weight? grad_bias?",
    "Its gradients; that of x is summed over ranks.")
row_linear_forward = ArrayCall(
    core.nxd_row_linear_forward, core.nxd_row_linear_forward_get_workspace,
    "nxd_row_linear_options_t", "x weight bias? -> y",
    "y = x weight^T + bias, of this rank's input features, summed over ranks.")
row_linear_backward = ArrayCall(
    core.nxd_row_linear_backward, core.nxd_row_linear_backward_get_workspace,
    "nxd_row_linear_options_t", "x weight grad_y -> grad_x? grad_weight? grad_bias?",
    "Its gradients.")
vocab_parallel_embedding_forward = ArrayCall(
    core.nxd_vocab_parallel_embedding_forward,
    core.nxd_vocab_parallel_embedding_forward_get_workspace,
    "nxd_vocab_parallel_embedding_options_t", "ids weight -> y",
    "Rows of a table by their ids; each rank has some of the rows.")
vocab_parallel_embedding_backward = ArrayCall(
    core.nxd_vocab_parallel_embedding_backward,
    core.nxd_vocab_parallel_embedding_backward_get_workspace,
    "nxd_vocab_parallel_embedding_options_t", "ids grad_y -> grad_weight",
    "Its gradient.")
parallel_cross_entropy_forward = ArrayCall(
    core.nxd_parallel_cross_entropy_forward, core.nxd_parallel_cross_entropy_forward_get_workspace,
    "nxd_parallel_cross_entropy_options_t", "logits labels -> statistics? loss",
    "The loss of logits whose vocabulary is split over ranks.")
parallel_cross_entropy_backward = ArrayCall(
    core.nxd_parallel_cross_entropy_backward,
    core.nxd_parallel_cross_entropy_backward_get_workspace,
    "nxd_parallel_cross_entropy_options_t", "logits labels statistics grad_loss? -> grad_logits",
    "Its gradient, which may take the place of the logits.")


def column_linears_forward(context: Context, x: Any, weights: Sequence[Any],
                           biases: Sequence[Any] | None, ys: Sequence[Any],
                           **options: Any) -> None:
    """column_linear_forward of one x by several weights, such as those of query, key and value:
    under sequence_parallel x is gathered once. [collective: tensor-parallel group]"""
    call_lists(context, core.nxd_column_linears_forward, "nxd_column_linear_options_t", options,
               [("x", x), ("weights", weights), ("biases", biases)], [("ys", ys)])


def column_linears_backward(context: Context, x: Any, weights: Sequence[Any],
                            grad_ys: Sequence[Any], grad_x: Any = None,
                            grad_weights: Sequence[Any] | None = None,
                            grad_biases: Sequence[Any] | None = None, **options: Any) -> None:
    """Its gradients; that of x is one sum over weights and ranks.
    [collective: tensor-parallel group]"""
    call_lists(context, core.nxd_column_linears_backward, "nxd_column_linear_options_t", options,
               [("x", x), ("weights", weights), ("grad_ys", grad_ys)],
               [("grad_x", grad_x), ("grad_weights", grad_weights), ("grad_biases", grad_biases)])


def region_mapping_forward(context: Context, mapping: RegionMapping | str, dim: int, x: Any,
                           y: Any) -> None:
    """Moves x into or out of a region. [collective: tensor-parallel group]"""
    _map_region(context, core.nxd_region_mapping_forward, mapping, dim, ("x", x), ("y", y))


def region_mapping_backward(context: Context, mapping: RegionMapping | str, dim: int,
                            grad_y: Any, grad_x: Any) -> None:
    """Its gradient. [collective: tensor-parallel group]"""
    _map_region(context, core.nxd_region_mapping_backward, mapping, dim, ("grad_y", grad_y),
                ("grad_x", grad_x))


def _map_region(context: Context, function: Any, mapping: RegionMapping | str, dim: int,
                given: tuple[str, Any], made: tuple[str, Any]) -> None:
    arrays = Arrays()
    with among(context):
        read, written = described(arrays, [given], [made])
        status = function(context.pointer, to_enum(RegionMapping, mapping), whole(dim), *read,
                          *written)
    arrays.check(status)
