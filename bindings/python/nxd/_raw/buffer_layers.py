# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/buffer_layers.h."""

from __future__ import annotations

from typing import Any, TypedDict

from nxd._raw.tensor_parallel import Reduction, Smoothing


class NormalizationOptions(TypedDict, total=False):
    """Options of the norms; the same on all ranks, but for the workspace."""

    # added to the mean square; 0: 1e-5
    eps: float
    # 1: each rank has rows of its own, such as a part of the sequence, and the gradients of weight
    # and bias are summed over ranks; 0: all ranks have the same rows
    sequence_parallel: int
    # 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    accumulate_grads: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


class DropoutOptions(TypedDict, total=False):
    """Options of nxd_dropout_forward and _backward; the same on all ranks, but for the workspace.
    """

    # the probability of an element to be dropped, from 0 to below 1
    p: float
    # see has_position
    step: int
    # see has_position
    microbatch: int
    # 1: bits are those of step and microbatch; 0: those of the context's (nxd_context_set_step)
    has_position: int
    # 1: each rank has a part of x along shard_dim; 0: all ranks have x
    has_shard_dim: int
    # of x; from the end when negative
    shard_dim: int
    # 1: elements are numbered with the first two dimensions the other way round, as the models of
    # libnxd do for [sequence, batch, features]
    transposed: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


class LinearCrossEntropyOptions(TypedDict, total=False):
    """Options of nxd_linear_cross_entropy_forward and _backward; the same on all ranks, but for the
    workspace.
    """

    # 0 to 1
    label_smoothing: float
    smoothing: Smoothing | str
    reduction: Reduction | str
    # classes that there are; 0: the rows of all ranks' weights, of which the last ones may pad a
    # vocabulary that does not divide
    vocab_size: int
    # see has_ignore_index
    ignore_index: int
    # 1: ignore_index counts; 0: -100
    has_ignore_index: int
    # 1: x is this rank's part along sequence_dim
    sequence_parallel: int
    # of x, not the last; from the end when negative
    sequence_dim: int
    # 1: the weight is [features, n]
    transposed_weight: int
    # 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    accumulate_grads: int
    # whose logits exist at a time; 0: by the library's choice
    block_tokens: int
    # memory for the call; NULL: the library's own
    workspace: Any
    # at least what the function's _get_workspace says
    workspace_bytes: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_linear_cross_entropy_options_t": {
        "smoothing": Smoothing,
        "reduction": Reduction,
    },
}
