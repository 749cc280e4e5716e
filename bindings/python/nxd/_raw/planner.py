# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/planner.h."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from nxd._raw.base import DType
from nxd._raw.pipeline import PpPartition, PpScheduleKind


class PlanModel(TypedDict, total=False):
    """Sizes of a decoder that predicts the next token, or of a BERT for pre-training.
    nxd_plan_model_from_config fills it.
    """

    hidden_size: int
    # at most 1024
    num_layers: int
    num_heads: int
    # 0: num_heads
    num_kv_heads: int
    # 0: hidden_size / num_heads
    head_dim: int
    intermediate_size: int
    vocab_size: int
    # rows of a table of positions that is learned; 0: there is none
    max_positions: int
    # 1: three matrices, as Llama's; 0: two, as GPT-2's
    gated_mlp: int
    attention_bias: int
    mlp_bias: int
    # 1: layers of that sort have biases; attention_bias 2: those of queries, keys and values alone,
    # as Qwen2's
    norm_bias: int
    # 1: the head's weight is the embedding's
    tied_embeddings: int
    # rows of a BERT's table of token types; 0: a decoder
    num_token_types: int
    # keys that a query sees at most; 0: all before it. Not of a BERT
    sliding_window: int
    # layers that have the window; 0: all. They count as their mean
    num_window_layers: int


class PlanMachine(TypedDict, total=False):
    """Figures of a machine, per rank while all ranks work. Floating-point operations and bytes are
    per second, latencies in seconds. The defaults are round figures of one core of a small host:
    they serve to compare layouts, not to predict times.
    """

    # 0: all ranks are on one host
    ranks_per_host: int
    # of a rank, for what is predicted; 0: no bound
    memory_bytes: int
    # of nxd_measure_gemm_peak; 0: 100e9
    gemm_rate_f32: float
    # 0: 200e9
    gemm_rate_bf16: float
    # of these, what attention's products reach; 0: 0.68
    attention_share_f32: float
    # 0: 0.64
    attention_share_bf16: float
    # read and written, of arrays that fit no cache; 0: 20e9
    memory_bandwidth: float
    # received from ranks of the same host; 0: 20e9
    host_bandwidth: float
    # 0: 1e-6
    host_latency: float
    # of a host to all others, in one direction; 0: 1.25e9
    link_bandwidth: float
    # 0: 50e-6
    link_latency: float


class PlanLayout(TypedDict, total=False):
    """How a model would be trained with AdamW."""

    # 0: 1
    tensor_parallel_size: int
    # 0: 1
    pipeline_parallel_size: int
    # 0: 1
    data_parallel_size: int
    # chunks of each rank; 0: 1
    virtual_size: int
    # not INFERENCE
    schedule: PpScheduleKind | str
    # of each data-parallel rank; 0: 1
    num_microbatches: int
    # sequences; 0: 1
    microbatch_size: int
    # tokens; at least 1
    sequence_length: int
    # of parameters: F32, or BF16 with F32 masters
    dtype: DType | str
    # 0 or 1
    zero_stage: int
    # 1: between layers each rank has a slice
    sequence_parallel: int
    # 1: every layer keeps its input alone
    recompute: int
    # DEFAULT: EVEN
    partition: PpPartition | str


class PlanPrediction(NamedTuple):
    """Estimated cost of a layout. Times are seconds of one step."""

    step_seconds: float
    # of all ranks
    tokens_per_second: float
    # of the ranks' GEMM peaks, by the operations of nxd_model_get_step_flops
    gemm_share: float
    # of the pipeline, by nxd_pp_schedule_get_report
    bubble_share: float
    # until the last rank has made its last task
    pipeline_seconds: float
    # of the world; the first of those that are alike
    busiest_rank: int
    # 1: total_bytes is at most the machine's memory_bytes
    fits: int
    gemm_seconds: float
    attention_seconds: float
    elementwise_seconds: float
    # collectives of layers
    tensor_parallel_seconds: float
    # one value or gradient to the next stage, the slowest
    transfer_seconds: float
    # reduction of gradients and gathering of parameters
    data_parallel_seconds: float
    # of these, those in which nothing else is done
    exposed_seconds: float
    optimizer_seconds: float
    fullest_rank: int
    parameter_bytes: int
    grad_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    # received values, gradients of activations, workspaces, and what the memory pool holds beyond
    # what is asked of it
    buffer_bytes: int
    total_bytes: int


class PlanSearchOptions(TypedDict, total=False):
    """Bounds of the layouts that nxd_plan_search looks for."""

    # 1 to 65536 ranks
    world_size: int
    # tokens
    sequence_length: int
    # sequences of a step, of all ranks together
    batch_size: int
    # F32 or BF16
    dtype: DType | str
    # 0: 4
    max_virtual_size: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_plan_layout_t": {
        "schedule": PpScheduleKind,
        "dtype": DType,
        "partition": PpPartition,
    },
    "nxd_plan_search_options_t": {
        "dtype": DType,
    },
}
