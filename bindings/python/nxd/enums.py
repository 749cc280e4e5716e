# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""The header's enums. Wherever one is taken, the name of a member, in small letters or
large, does as well."""

from nxd._raw import (
    Activation, AdamwFormula, Axis, Bf16Update, DType, Device, GraphFormat, Hyperparameter,
    Init, LogLevel, LrSchedule, Mismatch, ParameterState, Phase, Placement, Platform, PpLoss,
    PpPartition, PpScheduleKind, PpTaskKind, QkvFusion, Reduce, Reduction, RegionMapping,
    Rendezvous, Rope, Smoothing, Status, Toggle, TokenFormat, Transport,
)

__all__ = [
    "Activation", "AdamwFormula", "Axis", "Bf16Update", "DType", "Device", "GraphFormat",
    "Hyperparameter", "Init", "LogLevel", "LrSchedule", "Mismatch", "ParameterState", "Phase",
    "Placement", "Platform", "PpLoss", "PpPartition", "PpScheduleKind", "PpTaskKind",
    "QkvFusion", "Reduce", "Reduction", "RegionMapping", "Rendezvous", "Rope", "Smoothing",
    "Status", "Toggle", "TokenFormat", "Transport",
]
