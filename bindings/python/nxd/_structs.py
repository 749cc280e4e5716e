# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""Keywords of options, and fields of reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

from nxd.enums import (
    Activation, AdamwFormula, Bf16Update, DType, Device, Init, LrSchedule, ParameterState,
    Platform, PpLoss, PpPartition, PpScheduleKind, PpTaskKind, Reduce, Reduction, Rendezvous,
    Rope, Smoothing, Status, Toggle, Transport,
)


class ErrorInfo(NamedTuple):
    """The distributed call that failed. Strings are borrowed like nxd_last_error."""

    status: Status
    # world rank that was lost or disagreed; -1 when none is to blame
    root_rank: int
    # number of the collective in its group, from 0
    sequence: int
    # name of the group; "" when no group was involved
    group: str
    # such as "all_reduce"; "" when no collective was involved
    operation: str
    # of the training step whose end failed; -1 when none did
    step: int
    # what that failure has left of this rank's parameters
    parameters: ParameterState


class ContextOptions(TypedDict, total=False):
    """Options of nxd_context_create."""

    rendezvous: Rendezvous | str
    # with RENDEZVOUS_STORE: 0..size-1
    rank: int
    # with RENDEZVOUS_STORE: ranks in the world, at least 1
    size: int
    # rank on this host; with RENDEZVOUS_STORE; else the launcher's
    local_rank: int
    # with RENDEZVOUS_STORE: required when size > 1; kept alive
    store: Any
    # bound of every collective; 0: NXD_TIMEOUT_MS or 1800000
    timeout_ms: int
    # network interface or address; NULL: NXD_SOCKET_IFNAME, or loopback when all ranks share one
    # host
    interface_name: str
    # of initial weights and random bits; 0: NXD_SEED or 0
    seed: int
    # every layer through plain ATen operators; default: NXD_PLAIN_KERNELS or off
    plain_kernels: bool | Toggle | None
    # of all groups; AUTO: NXD_TRANSPORT or by topology
    transport: Transport | str
    # ranks that give the same name share memory; NULL: NXD_HOST_ID, or found out
    host_id: str
    # NULL: a blocked call ends by itself or by the timeout
    interrupt: Any
    # must outlive the context
    interrupt_data: Any


class DdpOptions(TypedDict, total=False):
    """Options of nxd_ddp_create and nxd_ddp_create_buffers; the same on all ranks."""

    # 0: 25 MiB; a parameter that is larger has a bucket of its own
    bucket_bytes: int
    # SUM or AVG over the group
    reduce: Reduce | str
    # 0, or 1: state is sharded over the group
    zero_stage: int
    # 1: gradients of BF16 parameters of a module are accumulated and reduced in f32
    fp32_grads: int
    # default on; off: buckets are reduced when gradients are finished
    overlap: bool | Toggle | None
    # default on: the first rank's parameters are sent to the others
    broadcast: bool | Toggle | None


class FinishOptions(TypedDict, total=False):
    """Options for the completion of gradients."""

    # factor on all gradients before the norm, within F32; 0: 1
    scale: float
    # gradients are scaled to this norm when theirs exceeds it; 0: no clipping
    max_norm: float
    # 0: 2; 1 and infinity too
    norm_type: float
    # SUM or AVG over data-parallel ranks; a ddp's own option counts where there is one
    data_parallel_reduce: Reduce | str
    # default on; off: a norm that is not finite is no reason to stop
    check_finite: bool | Toggle | None


class SpawnOptions(TypedDict, total=False):
    """Options of nxd_spawn."""

    # 0: NEURON_NUM_DEVICES, or 1
    num_processes: int
    # OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one process
    omp_num_threads: int
    # NULL-terminated program and arguments; NULL: this program, re-executed with its own arguments
    argv: Sequence[str]


class PhaseStats(NamedTuple):
    """Time and calls of a phase, from nxd_profile_get_phase."""

    # static storage, such as "GEMM forward"
    name: str
    # wall time of the threads that called kernels, added up
    seconds: float
    # floating-point operations: of GEMMs 2 m n k, of attention those that the mask leaves, without
    # the scores computed again; 0 elsewhere
    operations: float
    calls: int


class MemoryStats(NamedTuple):
    """Figures of the pool that tensors are drawn from, and of the contexts' arenas."""

    # in live tensors
    bytes_in_use: int
    # held from the system, live or ready for reuse
    bytes_reserved: int
    peak_bytes_in_use: int
    # since the process started
    allocations: int
    # of these, the ones that had to ask the system
    system_allocations: int
    # of nxd_memory_set_cap; 0: none
    cap_bytes: int
    # of all contexts' arenas: of nxd_arena_alloc, and in tensors that ranks of a host exchange in
    # place
    arena_bytes_in_use: int
    # address space of the arenas; pages never used take no memory
    arena_bytes_reserved: int


class LrScheduleOptions(TypedDict, total=False):
    """A schedule of learning rates. Steps count from 0; after total_steps the factor stays."""

    kind: LrSchedule | str
    warmup_steps: int
    # LINEAR and COSINE: more than warmup_steps
    total_steps: int
    # of [0, 1]
    final_factor: float


class AdamwOptions(TypedDict, total=False):
    """Options of nxd_optimizer_create_adamw."""

    # 0: 1e-3
    learning_rate: float
    # 0: 0.9
    beta1: float
    # 0: 0.999
    beta2: float
    # 0: 1e-8
    eps: float
    # 0: none
    weight_decay: float
    formula: AdamwFormula | str
    bf16_update: Bf16Update | str


class SgdOptions(TypedDict, total=False):
    """Options of nxd_optimizer_create_sgd: torch.optim.SGD."""

    # 0: 1e-3
    learning_rate: float
    # of [0, 1)
    momentum: float
    dampening: float
    weight_decay: float
    # 1: needs a momentum, and no dampening
    nesterov: int
    bf16_update: Bf16Update | str


class CustomOptimizerOptions(TypedDict, total=False):
    """Options of nxd_optimizer_create_custom."""

    # called on the thread of nxd_optimizer_step or _update
    update: Any
    user_data: Any
    # called with user_data when the optimizer is gone; may be NULL
    destroy: Any
    # 0: 1e-3
    learning_rate: float
    weight_decay: float
    # 0 to 8
    num_states: int
    # not STOCHASTIC
    bf16_update: Bf16Update | str


class StepReport(NamedTuple):
    """Report of a step."""

    # of all gradients before clipping; the same bits on all ranks
    norm: float
    # of group 0, with the schedule's factor
    learning_rate: float
    # made so far, this one included
    updates: int
    # 1: the norm was not finite, and nothing was updated
    skipped: int


class ParallelOptions(TypedDict, total=False):
    """A layout of ranks. Sizes are rejected, never clamped: tensor x pipeline x context, and tensor
    x pipeline x expert, must divide the world. Context- and expert-parallel groups are for a
    caller's own use: nothing is reduced over them, so with a size above 1 layers, models, their
    training, pipelines, and ddps over buffers without a group of their own are UNSUPPORTED.
    """

    # 0: 1
    tensor_parallel_size: int
    # 0: 1
    pipeline_parallel_size: int
    # 0: 1
    context_parallel_size: int
    # 0: 1
    expert_parallel_size: int
    platform: Platform | str
    # logical core configuration, 1 or 2; 0: 1
    lnc_size: int
    # ranks per host, for TRN1 and TRN2; 0: the whole world
    local_world_size: int


class PpTask(NamedTuple):
    """One computation of one rank. The layout never changes."""

    kind: PpTaskKind
    # 0..microbatches - 1
    microbatch: int
    # 0..chunks - 1, of the rank's
    chunk: int


class PpCosts(TypedDict, total=False):
    """Durations to judge a schedule by, in any one unit."""

    # of one microbatch, of each stage; NULL: 1
    forward: Sequence[float]
    # NULL: as forward
    backward_input: Sequence[float]
    # NULL: as forward; a BACKWARD task takes both
    backward_weight: Sequence[float]
    # of values or gradients between stages on different ranks
    transfer: float


class PpReport(NamedTuple):
    """Times of a schedule under given costs."""

    # until the last rank is done
    makespan: float
    # longest chain of tasks and transfers that depend on one another, were there as many processors
    # as tasks
    critical_path: float
    # idle time of all ranks over ranks * makespan, 0 to 1
    bubble_share: float
    # microbatches of a chunk, forwards done and weight gradients not, that the fullest rank keeps
    # at once; 0 without backward tasks
    peak_activations: int
    # the first one, if several are
    fullest_rank: int


class PpCall(NamedTuple):
    """The stage, chunk and microbatch that a callback is called for."""

    # 0..P * V - 1
    stage: int
    # of this rank's
    chunk: int
    microbatch: int
    # 1: no later task of this run adds to this chunk's parameter gradients
    last: int
    # what the loss of this microbatch is multiplied by: scale its gradient so
    loss_weight: float


class PpCallbacksOptions(TypedDict, total=False):
    """Options of nxd_pp_create_callbacks; the same on all ranks of the pipeline."""

    # at least 1
    num_microbatches: int
    # chunks of each rank; 0: 1
    virtual_size: int
    # of training
    schedule: PpScheduleKind | str
    # 1: every rank gets the mean over data-parallel ranks; 0: the last stage's rank gets its own,
    # others 0
    broadcast_and_average_loss: int
    # instead of schedule; NULL: none
    custom_schedule: Any


class PlanModel(TypedDict, total=False):
    """Sizes of a decoder that predicts the next token. nxd_plan_model_from_config fills it."""

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
    # 1: layers of that sort have biases
    norm_bias: int
    # 1: the head's weight is the embedding's
    tied_embeddings: int


class PlanMachine(TypedDict, total=False):
    """Figures of a machine, for each rank while all ranks are at it. Floating-point operations and
    bytes are per second, latencies in seconds. The defaults are round figures of one core of a
    small host: good to compare layouts, not to foretell a time.
    """

    # 0: all ranks are on one host
    ranks_per_host: int
    # of a rank, for what is predicted; 0: no bound
    memory_bytes: int
    # of nxd_measure_gemm_peak; 0: 100e9
    gemm_rate_f32: float
    # 0: 200e9
    gemm_rate_bf16: float
    # of these, what attention's products reach; 0: 0.59
    attention_share_f32: float
    # 0: 0.5
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
    # 1: sequence_length divides by tensor_parallel_size
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
    # received values, sums under way, gradients of activations
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


class FunctionOptions(TypedDict, total=False):
    """Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph.
    Outputs are new handles that the library takes over, also those filled before the callback
    fails; a borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is
    recorded.
    """

    # stable and unique, such as "mylib::swish"
    name: str
    # 0: 1
    num_outputs: int
    forward: Any
    backward: Any
    shape: Any
    user_data: Any
    # called when the function and its last recorded graph are gone
    destroy: Any


class CrossEntropyOptions(TypedDict, total=False):
    """Options of nxd_parallel_cross_entropy."""

    # 0 to 1
    label_smoothing: float
    smoothing: Smoothing | str
    reduction: Reduction | str
    # 1: ignore_index counts; 0: -100
    has_ignore_index: int
    ignore_index: int


class ParameterOptions(TypedDict, total=False):
    """How a parameter of the caller's is sharded and initialised."""

    # F32 (0), F64 or BF16
    dtype: DType | str
    # 1: shard_dim is split over tensor-parallel ranks; 0: replicated
    has_shard_dim: int
    # 1: its gradient is partial per tensor-parallel rank and summed
    sequence_parallel: int
    # DEFAULT: zeros
    init: Init | str
    init_a: float
    init_b: float
    # META: without values until nxd_move_model_to_device or nxd_pp_create
    device: Device | str
    shard_dim: int


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
    """Options of the two parallel linear layers."""

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
    # 0: 1; blocks per rank of the split dimension, for fused weights
    stride: int
    # DEFAULT: uniform(-1/sqrt(in), 1/sqrt(in)), the bias too
    init: Init | str
    init_a: float
    init_b: float


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
    # YARN; 0: 0.1 ln(factor) + 1
    attention_factor: float
    # DYNAMIC, YARN, LLAMA3
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


class ModelOptions(TypedDict, total=False):
    """Options of nxd_model_create."""

    # of the parameters: F32 (0), F64, BF16
    dtype: DType | str
    device: Device | str
    # 1: norms and residuals on slices of the sequence
    sequence_parallel: int


class PpOptions(TypedDict, total=False):
    """Options of nxd_pp_create; the same on all ranks. Strings and lists are copied."""

    # 0: 1; divides the batch, dimension 0 of every input
    num_microbatches: int
    # virtual_pipeline_size, chunks of each rank; 0: 1
    virtual_size: int
    # of training
    schedule: PpScheduleKind | str
    partition: PpPartition | str
    # instead of schedule; NULL: none
    custom_schedule: Any
    # a leaf, and what EVEN and COST count in; NULL: that of a built-in model
    transformer_layer_class: str
    # paths of modules, each the last of its stage
    pipeline_cuts: Sequence[str]
    num_cuts: int
    # more leaves, by class name or by path
    leaf_modules: Sequence[str]
    num_leaf_modules: int
    # of the model's inputs; NULL: a built-in model's own, else "input_0" and so on
    input_names: Sequence[str]
    num_input_names: int
    # of the model's forward; 0: 1
    num_outputs: int
    # which of them is the loss: a scalar
    loss_output: int
    loss: PpLoss | str
    # with TOKENS: 1: labels_input has the labels; 0: the input named "labels"
    has_labels_input: int
    labels_input: int
    # with TOKENS: 1: labels of ignore_index do not count; 0: of -100
    has_ignore_index: int
    ignore_index: int
    # with TOKENS: 1: labels are used as they are; 0: the first label of a row predicts nothing
    labels_shifted: int
    # 1: every rank gets the loss of all data-parallel ranks; not with return_mb_loss
    broadcast_and_average_loss: int
    # 1: losses of microbatches: nxd_pp_get_losses
    return_mb_loss: int
    # 1: a stage's outputs are kept until their backward; 0: let go once sent
    # (deallocate_pipeline_outputs)
    keep_outputs: int
    # for parameters on the meta device; NULL: the built-in initialisers, by seed and name
    param_init: Any
    param_init_data: Any
    # the graph as text, or as DOT if it ends in ".dot"; written on rank 0; NULL: not
    trace_file_path: str
    # NULL: leaves are those named above
    leaf_rule: Any
    # used as long as the pipeline lives
    leaf_rule_data: Any


# The enum of each field that has one.
FIELDS: dict[str, dict[str, type]] = {
    "nxd_error_info_t": {
        "status": Status,
        "parameters": ParameterState,
    },
    "nxd_context_options_t": {
        "rendezvous": Rendezvous,
        "plain_kernels": Toggle,
        "transport": Transport,
    },
    "nxd_ddp_options_t": {
        "reduce": Reduce,
        "overlap": Toggle,
        "broadcast": Toggle,
    },
    "nxd_finish_options_t": {
        "data_parallel_reduce": Reduce,
        "check_finite": Toggle,
    },
    "nxd_lr_schedule_options_t": {
        "kind": LrSchedule,
    },
    "nxd_adamw_options_t": {
        "formula": AdamwFormula,
        "bf16_update": Bf16Update,
    },
    "nxd_sgd_options_t": {
        "bf16_update": Bf16Update,
    },
    "nxd_update_t": {
        "dtype": DType,
        "grad_dtype": DType,
    },
    "nxd_custom_optimizer_options_t": {
        "bf16_update": Bf16Update,
    },
    "nxd_parallel_options_t": {
        "platform": Platform,
    },
    "nxd_pp_task_t": {
        "kind": PpTaskKind,
    },
    "nxd_pp_value_t": {
        "dtype": DType,
    },
    "nxd_pp_callbacks_options_t": {
        "schedule": PpScheduleKind,
    },
    "nxd_plan_layout_t": {
        "schedule": PpScheduleKind,
        "dtype": DType,
        "partition": PpPartition,
    },
    "nxd_plan_search_options_t": {
        "dtype": DType,
    },
    "nxd_cross_entropy_options_t": {
        "smoothing": Smoothing,
        "reduction": Reduction,
    },
    "nxd_parameter_options_t": {
        "dtype": DType,
        "init": Init,
        "device": Device,
    },
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
    "nxd_mlp_options_t": {
        "dtype": DType,
        "device": Device,
        "activation": Activation,
        "bias": Toggle,
        "init": Init,
    },
    "nxd_model_options_t": {
        "dtype": DType,
        "device": Device,
    },
    "nxd_pp_options_t": {
        "schedule": PpScheduleKind,
        "partition": PpPartition,
        "loss": PpLoss,
    },
}
