"""The functions of nxd/core.h: what needs no libtorch in the process, and gets along with any.

Stores, contexts, groups and collectives, processes, data parallelism and optimizers over arrays
the caller owns, pipelines of the caller's own stages, planning.
"""

from nxd._raw import ErrorInfo, MemoryStats, PhaseStats, PlanLayout, PlanMachine, PlanModel, \
    PlanPrediction, PpCall, PpReport, PpTask, StepReport
from nxd.context import Context, device, layout_find, layout_groups
from nxd.data_parallel import Ddp, sample_epoch
from nxd.enums import AdamwFormula, Axis, Bf16Update, Device, DType, Hyperparameter, LogLevel, \
    ParameterState, Phase, Platform, PpLoss, PpPartition, PpScheduleKind, PpTaskKind, Reduce, \
    Rendezvous, LrSchedule, Status, Transport
from nxd.errors import AbiMismatch, Aborted, Corrupt, InputOutput, Internal, InvalidArgument, \
    InvalidState, NxdError, PeerLost, Timeout, Unsupported, UserError, check
from nxd.group import Group, Work
from nxd.job import Job, spawn
from nxd.machine import build_info, environment_table, measure_gemm_peak, memory_stats, profile, \
    release_threads, set_log_callback, set_log_level, set_memory_cap, trim_memory, version
from nxd.optimizer import AdamW, CustomOptimizer, Optimizer, Sgd, Update, lr_schedule_factor
from nxd.pipeline import CallbackPipeline, Pipeline, PipelineSchedule, Stage, Value
from nxd.planner import plan_model_from_config, plan_predict, plan_search
from nxd.store import Store

__all__ = [
    "AbiMismatch", "Aborted", "AdamW", "AdamwFormula", "Axis", "Bf16Update", "CallbackPipeline",
    "Context", "Corrupt", "CustomOptimizer", "DType", "Ddp", "Device", "ErrorInfo", "Group",
    "Hyperparameter", "InputOutput", "Internal", "InvalidArgument", "InvalidState", "Job",
    "LogLevel", "MemoryStats", "NxdError", "Optimizer", "ParameterState", "PeerLost", "Phase",
    "PhaseStats", "Pipeline", "PipelineSchedule", "PlanLayout", "PlanMachine", "PlanModel",
    "PlanPrediction", "Platform", "PpCall", "PpLoss", "PpPartition", "PpReport",
    "PpScheduleKind", "PpTask", "PpTaskKind", "Reduce", "Rendezvous", "LrSchedule", "Sgd",
    "Stage", "Status", "StepReport", "Store", "Timeout", "Transport", "Unsupported", "Update",
    "UserError", "Value", "Work", "build_info", "check", "device", "environment_table",
    "layout_find", "layout_groups", "measure_gemm_peak", "memory_stats",
    "plan_model_from_config", "plan_predict", "plan_search", "profile", "release_threads",
    "sample_epoch", "lr_schedule_factor", "set_log_callback", "set_log_level", "set_memory_cap",
    "spawn", "trim_memory", "version",
]
