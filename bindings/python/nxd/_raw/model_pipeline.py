# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/model_pipeline.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from nxd._raw.pipeline import PpLoss, PpPartition, PpScheduleKind


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
    # of the model's forward; 0: 1, or with loss_path all that a module of a TorchScript file gives
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
    # with TOKENS: 1: labels are used as they are; 0: the first label of a row predicts nothing, but
    # for a BERT
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
    # output_loss_value_spec: the path of the loss in the outputs of the model's forward
    # (nxd_module_get_output_path), such as "losses.lm"; NULL: the loss is loss_output, which is 0
    # otherwise
    loss_path: str


FIELDS: dict[str, dict[str, type]] = {
    "nxd_pp_options_t": {
        "schedule": PpScheduleKind,
        "partition": PpPartition,
        "loss": PpLoss,
    },
}
