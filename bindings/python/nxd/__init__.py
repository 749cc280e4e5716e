"""libnxd for Python: distributed training over arrays and tensors.

nxd.core has what needs no libtorch; this package has all. libtorch is loaded by the first use of
what needs it: tensors, operators, modules, layers, models.
"""

from nxd import core, ops, raw
from nxd._libtorch import ForeignLibtorch
from nxd.autograd import Function, FunctionCall, autocast, backward, grad_enabled, grad, \
    no_grad
from nxd.device import DeviceLoader, DeviceMetrics, add_step_closure, add_step_closure_async, \
    device_metrics, device_report, mark_step, reset_device_metrics, step_graph, wait_step_closures
# Behind nxd.device, since the name of that module is core's function here.
from nxd.core import *
from nxd.enums import Activation, GraphFormat, Mismatch, QkvFusion, Rope, Toggle
from nxd.functional import copy_to_tensor_region, gather_from_sequence_region, \
    gather_from_tensor_region, linear_cross_entropy, parallel_cross_entropy, \
    reduce_from_tensor_region, reduce_scatter_to_sequence_region, scatter_to_sequence_region, \
    scatter_to_tensor_region
from nxd.layers import Attention, ColumnParallelLinear, Dropout, GatedMlp, Layer, LayerNorm, \
    Linear, Model, ParallelEmbedding, QkvLinear, RmsNorm, RotaryEmbedding, RowParallelLinear, \
    Sequential, TorchScript, number_of_extra_heads
from nxd.machine import cpu_mode
from nxd.model_pipeline import ModulePipeline
from nxd.module import LoadReport, Module, Parameter, Shard, Tape, deferred_init
from nxd.ops import Op
from nxd.serialization import Serialization, save, serialization_load, serialization_save
from nxd.tensors import Tensor, aten_pool, from_dlpack, set_aten_pool, tensor, zeros
from nxd.training import finish_grads, loss_weights

__all__ = core.__all__ + [
    "Activation", "Attention", "ColumnParallelLinear", "DeviceLoader", "DeviceMetrics", "Dropout",
    "ForeignLibtorch", "Function", "FunctionCall", "GatedMlp", "GraphFormat", "Layer", "LayerNorm", "Linear", "LoadReport", "Mismatch", "Model",
    "Module", "ModulePipeline", "Op", "ParallelEmbedding", "Parameter", "QkvFusion", "QkvLinear", "RmsNorm",
    "Rope", "RotaryEmbedding", "RowParallelLinear", "Sequential", "Serialization", "Shard", "Tape", "Tensor",
    "Toggle", "TorchScript", "add_step_closure", "add_step_closure_async", "aten_pool", "autocast",
    "backward", "copy_to_tensor_region",
    "core", "cpu_mode", "deferred_init", "device_metrics", "device_report", "finish_grads", "from_dlpack", "gather_from_sequence_region",
    "gather_from_tensor_region", "grad_enabled", "grad", "linear_cross_entropy",
    "loss_weights", "mark_step", "no_grad", "number_of_extra_heads", "ops", "parallel_cross_entropy", "raw",
    "reduce_from_tensor_region", "reduce_scatter_to_sequence_region", "reset_device_metrics", "save",
    "scatter_to_sequence_region", "scatter_to_tensor_region", "serialization_load",
    "serialization_save", "set_aten_pool", "step_graph",
    "tensor", "wait_step_closures", "zeros",
]
