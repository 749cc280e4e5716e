# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/training.h."""

from __future__ import annotations

FUNCTIONS = """
nxd_status_t nxd_finish_grads(nxd_module_t* root, const nxd_finish_options_t* options, double* out_norm);
nxd_status_t nxd_ddp_create(nxd_module_t* root, const nxd_ddp_options_t* options, nxd_ddp_t** out_ddp);
nxd_status_t nxd_optimizer_create_adamw(nxd_module_t* root, const nxd_adamw_options_t* options, nxd_optimizer_t** out_optimizer);
nxd_status_t nxd_optimizer_create_sgd(nxd_module_t* root, const nxd_sgd_options_t* options, nxd_optimizer_t** out_optimizer);
nxd_status_t nxd_optimizer_create_custom(nxd_module_t* root, const nxd_custom_optimizer_options_t* options, nxd_optimizer_t** out_optimizer);
nxd_status_t nxd_training_state_add_module(nxd_training_state_t* state, const char* name, nxd_module_t* root);
nxd_status_t nxd_loss_weights(nxd_context_t* ctx, nxd_tensor_t* const* labels, size_t num_labels, int64_t ignore_index, int32_t shifted, double* out_weights);
nxd_status_t nxd_apply_checkpoint(nxd_module_t* root, const char* const* names, size_t num_names, int32_t on);
"""
