# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/functional.h."""

from __future__ import annotations

from typing import TypedDict

from nxd._raw.tensor_parallel import Reduction, Smoothing

NAMES = """
typedef struct nxd_cross_entropy_options nxd_cross_entropy_options_t;
"""

TYPES = """
struct nxd_cross_entropy_options {
  size_t struct_size;
  double label_smoothing;
  nxd_smoothing_t smoothing;
  nxd_reduction_t reduction;
  int32_t has_ignore_index;
  int32_t reserved;
  int64_t ignore_index;
};
"""

FUNCTIONS = """
nxd_status_t nxd_copy_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y);
nxd_status_t nxd_reduce_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y);
nxd_status_t nxd_scatter_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y);
nxd_status_t nxd_gather_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y);
nxd_status_t nxd_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim, nxd_tensor_t** out_y);
nxd_status_t nxd_gather_from_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim, int32_t to_model_parallel, nxd_tensor_t** out_y);
nxd_status_t nxd_reduce_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim, nxd_tensor_t** out_y);
nxd_status_t nxd_cross_entropy_options_init(nxd_cross_entropy_options_t* options, size_t size);
nxd_status_t nxd_parallel_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* logits, nxd_tensor_t* labels, const nxd_cross_entropy_options_t* options, nxd_tensor_t** out_loss);
nxd_status_t nxd_linear_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t* weight, nxd_tensor_t* labels, int32_t sequence_dim, const nxd_cross_entropy_options_t* options, nxd_tensor_t** out_loss);
"""


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
