# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""The header's topics, a module for each that has enums, keywords of options or fields of
reports; nxd._declarations has what cffi knows of all."""

from nxd._raw import (
    base, buffer_layers, context, data, data_parallel, functional, layers, model,
    model_pipeline, module, optimizer, parallel, pipeline, planner, serialization,
    tensor_parallel,
)
from nxd._raw.autograd import FunctionOptions
from nxd._raw.base import (
    DType, Device, ErrorInfo, LogLevel, ParameterState, Status, Toggle,
)
from nxd._raw.buffer_layers import (
    DropoutOptions, LinearCrossEntropyOptions, NormalizationOptions,
)
from nxd._raw.context import ContextOptions, Rendezvous, Transport
from nxd._raw.data import DataLoaderOptions, TokenFormat
from nxd._raw.data_parallel import DdpOptions, FinishOptions, Placement
from nxd._raw.device import DeviceLoaderOptions, GraphFormat
from nxd._raw.functional import CrossEntropyOptions
from nxd._raw.group import Reduce
from nxd._raw.job import SpawnOptions
from nxd._raw.layers import (
    Activation, AttentionOptions, EmbeddingOptions, LinearOptions, MlpOptions, NormOptions,
    QkvFusion, QkvOptions, Rope, RopeOptions,
)
from nxd._raw.machine import Phase, PhaseStats
from nxd._raw.memory import MemoryStats
from nxd._raw.model import ModelOptions
from nxd._raw.model_pipeline import PpOptions
from nxd._raw.module import Mismatch, ParameterOptions
from nxd._raw.optimizer import (
    AdamwFormula, AdamwOptions, Bf16Update, CustomOptimizerOptions, Hyperparameter, LrSchedule,
    LrScheduleOptions, SgdOptions, StepReport,
)
from nxd._raw.parallel import Axis, ParallelOptions, Platform
from nxd._raw.pipeline import (
    PpCall, PpCallbacksOptions, PpCosts, PpLoss, PpPartition, PpReport, PpScheduleKind, PpTask,
    PpTaskKind,
)
from nxd._raw.planner import (
    PlanLayout, PlanMachine, PlanModel, PlanPrediction, PlanSearchOptions,
)
from nxd._raw.serialization import SaveOptions
from nxd._raw.tensor_parallel import (
    ColumnLinearOptions, ParallelCrossEntropyOptions, Reduction, RegionMapping,
    RowLinearOptions, Smoothing, VocabParallelEmbeddingOptions,
)
from nxd._raw.weights import Init, ShardOptions

ABI_VERSION = 0

# The enum of each field that has one, by struct.
FIELDS: dict[str, dict[str, type]] = {}
for _topic in (base, buffer_layers, context, data, data_parallel, functional, layers, model,
               model_pipeline, module, optimizer, parallel, pipeline, planner,
               serialization, tensor_parallel):
    FIELDS.update(_topic.FIELDS)

__all__ = [
    "ABI_VERSION", "FIELDS", "Activation", "AdamwFormula", "AdamwOptions", "AttentionOptions",
    "Axis", "Bf16Update", "ColumnLinearOptions", "ContextOptions", "CrossEntropyOptions",
    "CustomOptimizerOptions", "DType", "DataLoaderOptions", "DdpOptions", "Device",
    "DeviceLoaderOptions", "DropoutOptions", "EmbeddingOptions", "ErrorInfo", "FinishOptions",
    "FunctionOptions", "GraphFormat", "Hyperparameter", "Init", "LinearCrossEntropyOptions",
    "LinearOptions", "LogLevel", "LrSchedule", "LrScheduleOptions", "MemoryStats", "Mismatch",
    "MlpOptions", "ModelOptions", "NormOptions", "NormalizationOptions",
    "ParallelCrossEntropyOptions", "ParallelOptions", "ParameterOptions", "ParameterState",
    "Phase", "PhaseStats", "Placement", "PlanLayout", "PlanMachine", "PlanModel",
    "PlanPrediction", "PlanSearchOptions", "Platform", "PpCall", "PpCallbacksOptions",
    "PpCosts", "PpLoss", "PpOptions", "PpPartition", "PpReport", "PpScheduleKind", "PpTask",
    "PpTaskKind", "QkvFusion", "QkvOptions", "Reduce", "Reduction", "RegionMapping",
    "Rendezvous", "Rope", "RopeOptions", "RowLinearOptions", "SaveOptions", "SgdOptions",
    "ShardOptions", "Smoothing", "SpawnOptions", "Status", "StepReport", "Toggle",
    "TokenFormat", "Transport", "VocabParallelEmbeddingOptions",
]
