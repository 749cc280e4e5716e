"""The functions of nxd/core.h: what needs no libtorch in the process, and gets along with any.

Stores, contexts, groups and collectives, processes, data parallelism and optimizers over arrays
the caller owns, layers over arrays that ranks share, pipelines of the caller's own stages, planning.
"""

from nxd._raw import ErrorInfo, MemoryStats, PhaseStats, PlanLayout, PlanMachine, PlanModel, \
    PlanPrediction, PpCall, PpReport, PpTask, StepReport
from nxd.buffer_layers import dropout_backward, dropout_forward, layer_norm_backward, \
    layer_norm_forward, linear_cross_entropy_backward, linear_cross_entropy_forward, \
    rms_norm_backward, rms_norm_forward
from nxd.checkpoint import Checkpoint
from nxd.context import Context, device, layout_find, layout_groups
from nxd.data import DataLoader
from nxd.data_parallel import Ddp, sample_epoch
from nxd.enums import AdamwFormula, Axis, Bf16Update, Device, DType, Hyperparameter, LogLevel, \
    Init, ParameterState, Phase, Placement, Platform, PpLoss, PpPartition, PpScheduleKind, \
    PpTaskKind, Reduce, Reduction, RegionMapping, Rendezvous, LrSchedule, Smoothing, Status, \
    TokenFormat, Transport
from nxd.errors import AbiMismatch, Aborted, Corrupt, InputOutput, Internal, InvalidArgument, \
    InvalidState, NxdError, OutOfMemory, PeerLost, Timeout, Unsupported, UserError, check
from nxd.group import Group, Work
from nxd.job import Job, spawn
from nxd.machine import build_info, environment_table, measure_gemm_peak, memory_stats, profile, \
    release_threads, set_log_callback, set_log_level, set_memory_cap, trim_memory, version
from nxd.optimizer import AdamW, CustomOptimizer, Optimizer, Sgd, Update, lr_schedule_factor
from nxd.pipeline import CallbackPipeline, Pipeline, PipelineSchedule, Stage, Value
from nxd.planner import plan_model_from_config, plan_predict, plan_search
from nxd.store import Store
from nxd.tensor_parallel import column_linear_backward, column_linear_forward, \
    column_linears_backward, column_linears_forward, parallel_cross_entropy_backward, \
    parallel_cross_entropy_forward, region_mapping_backward, region_mapping_forward, \
    row_linear_backward, row_linear_forward, vocab_parallel_embedding_backward, \
    vocab_parallel_embedding_forward
from nxd.training_state import TrainingState
from nxd.weights import shard_gather_full, shard_initialize, shard_load_safetensors, \
    shard_set_full

__all__ = [
    "AbiMismatch", "Aborted", "AdamW", "AdamwFormula", "Axis", "Bf16Update", "CallbackPipeline",
    "Checkpoint", "Context", "Corrupt", "CustomOptimizer", "DType", "DataLoader", "Ddp", "Device",
    "ErrorInfo", "Group",
    "Hyperparameter", "InputOutput", "Internal", "InvalidArgument", "InvalidState", "Job",
    "LogLevel", "MemoryStats", "NxdError", "Optimizer", "OutOfMemory", "ParameterState", "PeerLost", "Phase",
    "PhaseStats", "Pipeline", "PipelineSchedule", "PlanLayout", "PlanMachine", "PlanModel",
    "Placement", "PlanPrediction", "Platform", "PpCall", "PpLoss", "PpPartition", "PpReport",
    "PpScheduleKind", "PpTask", "PpTaskKind", "Reduce", "Rendezvous", "LrSchedule", "Sgd",
    "Stage", "Status", "StepReport", "Store", "Timeout", "TokenFormat",
    "TrainingState", "Transport", "Unsupported",
    "Update", "UserError", "Value", "Work", "build_info", "check", "device", "environment_table",
    "layout_find", "layout_groups", "measure_gemm_peak", "memory_stats",
    "plan_model_from_config", "plan_predict", "plan_search", "profile", "release_threads",
    "sample_epoch", "lr_schedule_factor", "set_log_callback", "set_log_level", "set_memory_cap",
    "spawn", "trim_memory", "version",
    "Init", "Reduction", "RegionMapping", "Smoothing", "column_linear_backward",
    "column_linear_forward", "column_linears_backward", "column_linears_forward",
    "dropout_backward", "dropout_forward", "layer_norm_backward",
    "layer_norm_forward", "linear_cross_entropy_backward", "linear_cross_entropy_forward",
    "parallel_cross_entropy_backward", "parallel_cross_entropy_forward",
    "region_mapping_backward", "region_mapping_forward", "rms_norm_backward", "rms_norm_forward",
    "row_linear_backward", "row_linear_forward", "shard_gather_full", "shard_initialize",
    "shard_load_safetensors", "shard_set_full", "vocab_parallel_embedding_backward",
    "vocab_parallel_embedding_forward",
]
