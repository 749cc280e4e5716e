# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/buffer_layers.h."""

from __future__ import annotations

from typing import Any, TypedDict

from nxd._raw.tensor_parallel import Reduction, Smoothing

NAMES = """
typedef struct nxd_normalization_options nxd_normalization_options_t;
typedef struct nxd_dropout_options nxd_dropout_options_t;
typedef struct nxd_linear_cross_entropy_options nxd_linear_cross_entropy_options_t;
"""

TYPES = """
struct nxd_normalization_options {
  size_t struct_size;
  double eps;
  int32_t sequence_parallel;
  int32_t accumulate_grads;
  void* workspace;
  size_t workspace_bytes;
};
struct nxd_dropout_options {
  size_t struct_size;
  double p;
  int64_t step;
  int64_t microbatch;
  int32_t has_position;
  int32_t has_shard_dim;
  int32_t shard_dim;
  int32_t transposed;
  void* workspace;
  size_t workspace_bytes;
};
struct nxd_linear_cross_entropy_options {
  size_t struct_size;
  double label_smoothing;
  nxd_smoothing_t smoothing;
  nxd_reduction_t reduction;
  int64_t vocab_size;
  int64_t ignore_index;
  int32_t has_ignore_index;
  int32_t sequence_parallel;
  int32_t sequence_dim;
  int32_t transposed_weight;
  int32_t accumulate_grads;
  int32_t block_tokens;
  void* workspace;
  size_t workspace_bytes;
};
"""

FUNCTIONS = """
nxd_status_t nxd_normalization_options_init(nxd_normalization_options_t* options, size_t size);
nxd_status_t nxd_rms_norm_forward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const nxd_normalization_options_t* options, DLTensor* y, DLTensor* statistics);
nxd_status_t nxd_rms_norm_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const nxd_normalization_options_t* options, const DLTensor* y, const DLTensor* statistics, size_t* out_bytes);
nxd_status_t nxd_rms_norm_backward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics, const DLTensor* grad_y, const nxd_normalization_options_t* options, DLTensor* grad_x, DLTensor* grad_weight);
nxd_status_t nxd_rms_norm_backward_get_workspace(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics, const DLTensor* grad_y, const nxd_normalization_options_t* options, const DLTensor* grad_x, const DLTensor* grad_weight, size_t* out_bytes);
nxd_status_t nxd_layer_norm_forward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias, const nxd_normalization_options_t* options, DLTensor* y, DLTensor* statistics);
nxd_status_t nxd_layer_norm_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias, const nxd_normalization_options_t* options, const DLTensor* y, const DLTensor* statistics, size_t* out_bytes);
nxd_status_t nxd_layer_norm_backward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics, const DLTensor* grad_y, const nxd_normalization_options_t* options, DLTensor* grad_x, DLTensor* grad_weight, DLTensor* grad_bias);
nxd_status_t nxd_layer_norm_backward_get_workspace(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics, const DLTensor* grad_y, const nxd_normalization_options_t* options, const DLTensor* grad_x, const DLTensor* grad_weight, const DLTensor* grad_bias, size_t* out_bytes);
nxd_status_t nxd_dropout_options_init(nxd_dropout_options_t* options, size_t size);
nxd_status_t nxd_dropout_forward(nxd_context_t* ctx, const char* name, const DLTensor* x, const nxd_dropout_options_t* options, DLTensor* y);
nxd_status_t nxd_dropout_forward_get_workspace(nxd_context_t* ctx, const char* name, const DLTensor* x, const nxd_dropout_options_t* options, const DLTensor* y, size_t* out_bytes);
nxd_status_t nxd_dropout_backward(nxd_context_t* ctx, const char* name, const DLTensor* grad_y, const nxd_dropout_options_t* options, DLTensor* grad_x);
nxd_status_t nxd_dropout_backward_get_workspace(nxd_context_t* ctx, const char* name, const DLTensor* grad_y, const nxd_dropout_options_t* options, const DLTensor* grad_x, size_t* out_bytes);
nxd_status_t nxd_linear_cross_entropy_options_init(nxd_linear_cross_entropy_options_t* options, size_t size);
nxd_status_t nxd_linear_cross_entropy_forward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias, const DLTensor* labels, const nxd_linear_cross_entropy_options_t* options, DLTensor* statistics, DLTensor* loss);
nxd_status_t nxd_linear_cross_entropy_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias, const DLTensor* labels, const nxd_linear_cross_entropy_options_t* options, const DLTensor* statistics, const DLTensor* loss, size_t* out_bytes);
nxd_status_t nxd_linear_cross_entropy_backward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias, const DLTensor* labels, const DLTensor* statistics, const DLTensor* grad_loss, const nxd_linear_cross_entropy_options_t* options, DLTensor* grad_x, DLTensor* grad_weight, DLTensor* grad_bias);
nxd_status_t nxd_linear_cross_entropy_backward_get_workspace(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias, const DLTensor* labels, const DLTensor* statistics, const DLTensor* grad_loss, const nxd_linear_cross_entropy_options_t* options, const DLTensor* grad_x, const DLTensor* grad_weight, const DLTensor* grad_bias, size_t* out_bytes);
"""


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
