"""Norms, dropout, and a head with its loss, over arrays as nxd.tensor_parallel takes them."""

from __future__ import annotations

from nxd._array_calls import ArrayCall, NamedArrayCall
from nxd.raw import core

rms_norm_forward = ArrayCall(
    core.nxd_rms_norm_forward, core.nxd_rms_norm_forward_get_workspace,
    "nxd_normalization_options_t", "x weight? -> y statistics?",
    "y = x / sqrt(mean(x^2) + eps) weight over the last dimension.")
rms_norm_backward = ArrayCall(
    core.nxd_rms_norm_backward, core.nxd_rms_norm_backward_get_workspace,
    "nxd_normalization_options_t", "x weight? statistics grad_y -> grad_x? grad_weight?",
    "Its gradients; that of weight is summed over ranks with sequence_parallel.")
layer_norm_forward = ArrayCall(
    core.nxd_layer_norm_forward, core.nxd_layer_norm_forward_get_workspace,
    "nxd_normalization_options_t", "x weight? bias? -> y statistics?",
    "y = (x - mean) / sqrt(variance + eps) weight + bias over the last dimension.")
layer_norm_backward = ArrayCall(
    core.nxd_layer_norm_backward, core.nxd_layer_norm_backward_get_workspace,
    "nxd_normalization_options_t",
    "x weight? statistics grad_y -> grad_x? grad_weight? grad_bias?",
    "Its gradients; those of weight and bias are summed over ranks with sequence_parallel.")
dropout_forward = NamedArrayCall(
    core.nxd_dropout_forward, core.nxd_dropout_forward_get_workspace, "nxd_dropout_options_t",
    "x -> y", "y = x / (1 - p) where the layer's bits keep an element, else 0.")
dropout_backward = NamedArrayCall(
    core.nxd_dropout_backward, core.nxd_dropout_backward_get_workspace, "nxd_dropout_options_t",
    "grad_y -> grad_x", "Its gradient, by the same bits.")
linear_cross_entropy_forward = ArrayCall(
    core.nxd_linear_cross_entropy_forward, core.nxd_linear_cross_entropy_forward_get_workspace,
    "nxd_linear_cross_entropy_options_t", "x weight bias? labels -> statistics? loss",
    "The loss of the logits x weight^T + bias, which are never whole.")
linear_cross_entropy_backward = ArrayCall(
    core.nxd_linear_cross_entropy_backward, core.nxd_linear_cross_entropy_backward_get_workspace,
    "nxd_linear_cross_entropy_options_t",
    "x weight bias? labels statistics grad_loss? -> grad_x? grad_weight? grad_bias?",
    "Its gradients; that of x is summed over ranks.")
