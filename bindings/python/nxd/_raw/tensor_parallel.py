# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/tensor_parallel.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypedDict

from nxd._raw.base import Toggle


class Reduction(IntEnum):
    """Result of a loss."""

    INVALID = -1
    # over valid tokens; 0 when there is none
    MEAN = 0
    SUM = 1
    # one value per token
    NONE = 2


class Smoothing(IntEnum):
    """Formula of label smoothing."""

    INVALID = -1
    # (1 - s) nll + s mean of -log p, as torch's cross_entropy
    TORCH = 0
    # the same with s V / (V - 1), over the whole vocabulary V
    MEGATRON = 1


class RegionMapping(IntEnum):
    """Moves between what the ranks of the group hold alike and what they hold in parts, as in
    Megatron-LM. The features of a tensor-parallel region are parts along the last dimension (dim
    -1), a sequence is one along another.
    """

    INVALID = -1
    # identity; backward: sum over ranks
    COPY_TO = 0
    # sum over ranks; backward: identity
    REDUCE_FROM = 1
    # this rank's part; backward: all parts
    SCATTER_TO = 2
    # all parts; backward: this rank's part
    GATHER_FROM = 3
    # all parts, for a layer that is split over ranks; backward: this rank's part of the sum
    GATHER_FOR_SHARDS = 4
    # this rank's part of the sum; backward: all parts
    REDUCE_SCATTER_TO = 5


class ColumnLinearOptions(TypedDict, total=False):
    """Options of nxd_column_linear_forward, nxd_column_linears_forward and their _backward; the
    same on all ranks, but for the workspace.
    """

    # 1: y has the features of all ranks, else this rank's
    gather_output: int
    # 1: x is this rank's part along sequence_dim; not together with gather_output
    sequence_parallel: int
    # of x and y, not the last; from the end when negative
    sequence_dim: int
    # 1: the weight is [in_features, out_features / tp]
    transposed_weight: int
    # 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    accumulate_grads: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


class RowLinearOptions(TypedDict, total=False):
    """Options of nxd_row_linear_forward and _backward; the same on all ranks, but for the
    workspace.
    """

    # default on: x has this rank's features; off: those of all ranks, of which this rank takes its
    # own
    input_is_parallel: bool | Toggle | None
    # 1: y is this rank's part of the sum along sequence_dim; needs input_is_parallel
    sequence_parallel: int
    # of x and y, not the last; from the end when negative
    sequence_dim: int
    # 1: the weight is [in_features / tp, out_features]
    transposed_weight: int
    # 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    accumulate_grads: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


class VocabParallelEmbeddingOptions(TypedDict, total=False):
    """Options of nxd_vocab_parallel_embedding_forward and _backward; the same on all ranks, but for
    the workspace.
    """

    # ids that there are; 0: the rows of all ranks, of which the last ones may pad a vocabulary that
    # does not divide
    num_embeddings: int
    # see has_padding_idx
    padding_idx: int
    # 1: the row of padding_idx gets no gradient
    has_padding_idx: int
    # 1: y is this rank's part along sequence_dim
    sequence_parallel: int
    # of y, not the last; from the end when negative
    sequence_dim: int
    # 1: grad_weight is added to what is there; 0: it is overwritten
    accumulate_grads: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


class ParallelCrossEntropyOptions(TypedDict, total=False):
    """Options of nxd_parallel_cross_entropy_forward and _backward; the same on all ranks, but for
    the workspace.
    """

    # 0 to 1
    label_smoothing: float
    smoothing: Smoothing | str
    reduction: Reduction | str
    # classes that there are; 0: the columns of all ranks, of which the last ones may pad a
    # vocabulary that does not divide
    vocab_size: int
    # see has_ignore_index
    ignore_index: int
    # 1: ignore_index counts; 0: -100
    has_ignore_index: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_row_linear_options_t": {
        "input_is_parallel": Toggle,
    },
    "nxd_parallel_cross_entropy_options_t": {
        "smoothing": Smoothing,
        "reduction": Reduction,
    },
}
