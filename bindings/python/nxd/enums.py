# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""The header's enums. Wherever one is taken, the name of a member, in small letters or
large, does as well."""

from enum import IntEnum


class Status(IntEnum):
    """Outcome of a call. Values never change their meaning."""

    OK = 0
    # NULL, shape, dtype, size, range, or ranks that disagree
    INVALID_ARGUMENT = -1
    # wrong order of calls, after fork, after finalize
    INVALID_STATE = -2
    # valid, but not on this device, build or layout
    UNSUPPORTED = -3
    OUT_OF_MEMORY = -4
    # a peer did not answer in time; the group is poisoned
    TIMEOUT = -5
    # a peer died or left; the context's groups are poisoned
    PEER_LOST = -6
    # nxd_group_abort or nxd_context_abort was called
    ABORTED = -7
    # file or network, not a peer of the group
    IO = -8
    # a file's content contradicts itself or its checksum
    CORRUPT = -9
    # a defect of the library: please report it
    INTERNAL = -10
    # a struct from a header this library does not know
    ABI_MISMATCH = -11
    # a callback's own failure; passed through unchanged
    USER = -12


class DType(IntEnum):
    """Element types."""

    INVALID = -1
    F32 = 0
    F64 = 1
    BF16 = 2
    F16 = 3
    I32 = 4
    I64 = 5
    U8 = 6
    I8 = 7
    I16 = 8
    BOOL = 9


class Toggle(IntEnum):
    """On, off, or the default that the field's comment names."""

    INVALID = -1
    DEFAULT = 0
    ON = 1
    OFF = 2


class ParameterState(IntEnum):
    """The step that this rank's parameters belong to after an optimizer's step."""

    INVALID = -1
    # no step was concerned
    NONE = 0
    # all are as before the step
    OLD = 1
    # all are as after it
    NEW = 2
    # some of each: of no use until they are loaded again
    PARTIAL = 3


class LogLevel(IntEnum):
    """Severity of log lines; lines below the process-wide level are dropped."""

    INVALID = -1
    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3
    OFF = 4


class Device(IntEnum):
    """Kind of a device."""

    INVALID = -1
    CPU = 0
    NEURON = 1
    META = 2


class Rendezvous(IntEnum):
    """The source of a context's rank, and the place where it meets its peers."""

    INVALID = -1
    ENVIRONMENT = 0
    STORE = 1


class Transport(IntEnum):
    """The means that carries the data of a group."""

    INVALID = -1
    AUTO = 0
    # TCP between all ranks
    GLOO = 1
    # groups that span hosts are rejected
    SHARED_MEMORY = 2
    # shared memory within hosts, Gloo between them
    HIERARCHICAL = 3


class Reduce(IntEnum):
    """Reductions."""

    INVALID = -1
    SUM = 0
    # sum divided by the group's size; floats only
    AVG = 1
    # NaN wins
    MAX = 2
    # NaN wins
    MIN = 3
    PROD = 4


class Phase(IntEnum):
    """Work that the library spends time on while it trains."""

    INVALID = -1
    # y = x W^T of linear layers
    GEMM_FORWARD = 0
    # dx = dy W
    GEMM_INPUT_GRAD = 1
    # dW = dy^T x
    GEMM_WEIGHT_GRAD = 2
    # with its products
    ATTENTION = 3
    CROSS_ENTROPY = 4
    # norms, activations, rotary and other embeddings, casts
    ELEMENTWISE = 5
    # updates, and norms and scaling of gradients
    OPTIMIZER = 6
    # collectives and messages, with the wait for other ranks
    COMMUNICATION = 7


class LrSchedule(IntEnum):
    """Learning rates over time; all rise linearly from rate / warmup_steps over the warm-up."""

    INVALID = -1
    CONSTANT = 0
    # down to final_factor at total_steps
    LINEAR = 1
    # the same along half a cosine (Loshchilov and Hutter 2017)
    COSINE = 2


class Bf16Update(IntEnum):
    """The update of BF16 parameters, whose spacing is wider than most steps."""

    INVALID = -1
    # an f32 copy is updated, and rounded to nearest
    MASTER = 0
    # rounded stochastically; no copy
    STOCHASTIC = 1
    # rounded to nearest; no copy: small steps are lost
    NEAREST = 2


class AdamwFormula(IntEnum):
    """Formulas of AdamW."""

    INVALID = -1
    # torch.optim.AdamW
    TORCH = 0
    # NxD Core's: eps beside the uncorrected root; decay last
    NXD = 1


class Hyperparameter(IntEnum):
    """Hyperparameters; see the options of each optimizer."""

    INVALID = -1
    # without the schedule's factor
    LEARNING_RATE = 0
    WEIGHT_DECAY = 1
    BETA1 = 2
    BETA2 = 3
    EPS = 4
    MOMENTUM = 5
    DAMPENING = 6


class Axis(IntEnum):
    """Axes of the rank layout."""

    INVALID = -1
    WORLD = 0
    TENSOR = 1
    PIPELINE = 2
    DATA = 3
    CONTEXT = 4
    EXPERT_MODEL = 5
    EXPERT_DATA = 6


class Platform(IntEnum):
    """Hardware whose rank order to follow."""

    INVALID = -1
    # tensor-parallel ranks adjacent, then context, data, pipeline
    NEUTRAL = 0
    # as neutral, but tensor groups of 4 are strided within a host
    TRN1 = 1
    # as neutral, but tensor groups of 64 (32 with lnc_size 2) are rings
    TRN2 = 2


class PpScheduleKind(IntEnum):
    """Orders in which ranks compute."""

    INVALID = -1
    # 1F1B with one chunk, INTERLEAVED with several
    DEFAULT = 0
    # one forward, one backward (Narayanan et al. 2019, Megatron's non-interleaved); one chunk
    _1F1B = 1
    # 1F1B over several chunks (Narayanan et al. 2021); microbatches divide by ranks
    INTERLEAVED = 2
    # all forwards, then all backwards (Huang et al. 2019), in the order of the microbatches
    GPIPE = 3
    # ZB-H1: weight gradients fill the bubble, at 1F1B's memory (Qi et al. 2023); one chunk
    ZERO_BUBBLE = 4
    # forwards only
    INFERENCE = 5


class PpTaskKind(IntEnum):
    """The computation of a task."""

    INVALID = -1
    FORWARD = 0
    # gradients of inputs and of parameters
    BACKWARD = 1
    # of inputs alone; a WEIGHT_GRAD follows
    INPUT_GRAD = 2
    WEIGHT_GRAD = 3


class PpLoss(IntEnum):
    """The way in which losses of microbatches add up."""

    INVALID = -1
    DEFAULT = 0
    # the mean of the microbatches' losses
    MICROBATCHES = 1
    # the mean over the valid tokens of all microbatches and data-parallel ranks: see
    # nxd_loss_weights
    TOKENS = 2


class PpPartition(IntEnum):
    """The way in which a model is cut into stages."""

    INVALID = -1
    # at pipeline_cuts if given, else EVEN
    DEFAULT = 0
    # as many layers everywhere, the remainder in the later stages
    EVEN = 1
    # the most expensive stage is as cheap as can be: floating-point operations, counted from
    # shapes, of layers, embedding, head and loss
    COST = 2


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


class Init(IntEnum):
    """Distribution of initial weights."""

    INVALID = -1
    # of the layer: see its comment
    DEFAULT = 0
    # mean a, standard deviation b
    NORMAL = 1
    # from a to b
    UNIFORM = 2
    # a
    CONSTANT = 3
    # He et al. 2015: bound sqrt(6 / ((1 + a^2) fan_in))
    KAIMING_UNIFORM = 4


class Mismatch(IntEnum):
    """Ways not to match."""

    INVALID = -1
    # a parameter that the file lacks
    MISSING = 0
    # a tensor that the model lacks
    UNEXPECTED = 1
    # a tensor of another shape than the parameter's
    SHAPE = 2


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


class Activation(IntEnum):
    """Activation of a gated MLP."""

    INVALID = -1
    SILU = 0
    GELU = 1
    GELU_TANH = 2
    RELU = 3
