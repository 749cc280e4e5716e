# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/layers.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypedDict

from nxd._raw.base import DType, Device, Toggle
from nxd._raw.weights import Init


class Rope(IntEnum):
    """Scaling of rotary frequencies, as in Hugging Face configurations."""

    INVALID = -1
    DEFAULT = 0
    LINEAR = 1
    # NTK-aware, by the length of the input
    DYNAMIC = 2
    # Peng et al. 2023
    YARN = 3
    LLAMA3 = 4


class QkvFusion(IntEnum):
    """The weights of queries, keys and values."""

    INVALID = -1
    # q_proj, k_proj and v_proj, three weights
    SEPARATE = 0
    # one weight: all queries, then all keys, then all values
    BY_PART = 1
    # one weight: of each key head its queries, its key and its value
    BY_HEAD = 2


class Activation(IntEnum):
    """Activation of a gated MLP."""

    INVALID = -1
    SILU = 0
    GELU = 1
    GELU_TANH = 2
    RELU = 3


class EmbeddingOptions(TypedDict, total=False):
    """Options of nxd_layer_create_parallel_embedding."""

    # canonical name of the layer for its initial weights; NULL: ""
    name: str
    # of the weight: F32 (0), F64, BF16
    dtype: DType | str
    device: Device | str
    # DEFAULT: normal(0, 1)
    init: Init | str
    # 1: padding_idx gets no gradient, and starts as zeros
    has_padding_idx: int
    init_a: float
    init_b: float
    padding_idx: int
    # 1: embedding_dim is split instead of the vocabulary
    shard_across_embedding: int
    # 1: the output is scattered along sequence_dim
    sequence_parallel: int
    # of the output
    sequence_dim: int


class LinearOptions(TypedDict, total=False):
    """Options of the linear layers."""

    # canonical name of the layer for its initial weights; NULL: ""
    name: str
    # of weight and bias: F32 (0), F64, BF16
    dtype: DType | str
    device: Device | str
    # default on
    bias: bool | Toggle | None
    # column only; default on, off with sequence_parallel
    gather_output: bool | Toggle | None
    # row only; default on; off: the partial sums are the output
    reduce_output: bool | Toggle | None
    # row only; 1: the input is split along its last dimension already
    input_is_parallel: int
    sequence_parallel: int
    sequence_dim: int
    # 1: a second output gives the bias, which is not added
    skip_bias_add: int
    # 1: nxd_module_get_master_weight gives the whole initial weight
    keep_master_weight: int
    # 0: 1; blocks per rank of the split dimension, for fused weights; above 1 without
    # gather_output, and with input_is_parallel
    stride: int
    # DEFAULT: uniform(-1/sqrt(in), 1/sqrt(in)), the bias too
    init: Init | str
    init_a: float
    init_b: float
    # column and row; 1: features that the ranks do not divide are split all the same, with zeros
    # behind the last, as by nxd_pad_model; 0: they must divide
    pad: int


class NormOptions(TypedDict, total=False):
    """Options of the norms."""

    name: str
    dtype: DType | str
    device: Device | str
    # 0: 1e-5
    eps: float
    # default on: a weight (and a bias, LayerNorm)
    affine: bool | Toggle | None
    # LayerNorm only; default on
    bias: bool | Toggle | None
    # 1: inputs are slices, and the gradients of its parameters partial
    sequence_parallel: int


class RopeOptions(TypedDict, total=False):
    """Rotary position embedding (Su et al. 2021): pairs are the two halves of a head."""

    type: Rope | str
    # leading features that turn; 0: the whole head
    rotary_dim: int
    # 0: 10000
    theta: float
    # of LINEAR, DYNAMIC, YARN and LLAMA3; 0: 1
    factor: float
    # LLAMA3; 0: 1
    low_freq_factor: float
    # LLAMA3; 0: 4
    high_freq_factor: float
    # YARN; 0: 32
    beta_fast: float
    # YARN; 0: 1
    beta_slow: float
    # YARN; 0: 0.1 ln(factor) + 1, at least 1
    attention_factor: float
    # DYNAMIC, YARN, LLAMA3: more than 0
    original_max_position_embeddings: int


class AttentionOptions(TypedDict, total=False):
    """Options of nxd_layer_create_attention."""

    name: str
    dtype: DType | str
    device: Device | str
    # 0: num_heads
    num_kv_heads: int
    # 0: hidden_size / num_heads
    head_dim: int
    # NULL: no rotary embedding; copied
    rope: Any
    # default on
    causal: bool | Toggle | None
    # default off
    qkv_bias: bool | Toggle | None
    # default off
    output_bias: bool | Toggle | None
    sequence_parallel: int
    # DEFAULT: as the linear layers
    init: Init | str
    init_a: float
    init_b: float


class QkvOptions(TypedDict, total=False):
    """Options of nxd_layer_create_qkv_linear."""

    name: str
    dtype: DType | str
    device: Device | str
    # 0: num_heads
    num_kv_heads: int
    # 0: hidden_size / num_heads
    head_dim: int
    fusion: QkvFusion | str
    # default on
    bias: bool | Toggle | None
    sequence_parallel: int
    # DEFAULT: as the linear layers
    init: Init | str
    init_a: float
    init_b: float


class MlpOptions(TypedDict, total=False):
    """Options of nxd_layer_create_gated_mlp."""

    name: str
    dtype: DType | str
    device: Device | str
    activation: Activation | str
    # default off
    bias: bool | Toggle | None
    # 1: x is a slice of dimension 0
    sequence_parallel: int
    # DEFAULT: as the linear layers
    init: Init | str
    init_a: float
    init_b: float


FIELDS: dict[str, dict[str, type]] = {
    "nxd_embedding_options_t": {
        "dtype": DType,
        "device": Device,
        "init": Init,
    },
    "nxd_linear_options_t": {
        "dtype": DType,
        "device": Device,
        "bias": Toggle,
        "gather_output": Toggle,
        "reduce_output": Toggle,
        "init": Init,
    },
    "nxd_norm_options_t": {
        "dtype": DType,
        "device": Device,
        "affine": Toggle,
        "bias": Toggle,
    },
    "nxd_rope_options_t": {
        "type": Rope,
    },
    "nxd_attention_options_t": {
        "dtype": DType,
        "device": Device,
        "causal": Toggle,
        "qkv_bias": Toggle,
        "output_bias": Toggle,
        "init": Init,
    },
    "nxd_qkv_options_t": {
        "dtype": DType,
        "device": Device,
        "fusion": QkvFusion,
        "bias": Toggle,
        "init": Init,
    },
    "nxd_mlp_options_t": {
        "dtype": DType,
        "device": Device,
        "activation": Activation,
        "bias": Toggle,
        "init": Init,
    },
}
