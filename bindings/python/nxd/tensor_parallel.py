"""Tensor-parallel layers over arrays of any framework's, forward and backward; no libtorch.

Each takes the context, its arrays in order or by name, and options by keyword. Arrays are read and
written in place, in any strides. A rank whose array is bad makes the call fail on all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nxd._array_calls import ArrayCall, call
from nxd._handle import to_enum
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


def region_mapping_forward(context: Context, mapping: RegionMapping | str, dim: int, x: Any,
                           y: Any) -> None:
    """Moves x into or out of a region. [collective: tensor-parallel group]"""
    call(context, core.nxd_region_mapping_forward, (to_enum(RegionMapping, mapping), dim),
         [("x", x)], (), [("y", y)], True)


def region_mapping_backward(context: Context, mapping: RegionMapping | str, dim: int,
                            grad_y: Any, grad_x: Any) -> None:
    """Its gradient. [collective: tensor-parallel group]"""
    call(context, core.nxd_region_mapping_backward, (to_enum(RegionMapping, mapping), dim),
         [("grad_y", grad_y)], (), [("grad_x", grad_x)], True)
