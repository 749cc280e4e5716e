# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/training_state.h."""

from __future__ import annotations

NAMES = """
typedef struct nxd_training_state nxd_training_state_t;
"""

FUNCTIONS = """
nxd_status_t nxd_training_state_create(nxd_context_t* ctx, nxd_training_state_t** out_state);
nxd_status_t nxd_training_state_add_optimizer(nxd_training_state_t* state, const char* name, nxd_optimizer_t* optimizer);
nxd_status_t nxd_training_state_add_data_loader(nxd_training_state_t* state, const char* name, nxd_data_loader_t* loader);
nxd_status_t nxd_training_state_set_value(nxd_training_state_t* state, const char* key, const char* value);
nxd_status_t nxd_training_state_get_value(nxd_training_state_t* state, const char* key, char* buf, size_t cap, size_t* out_needed);
nxd_status_t nxd_training_state_save(nxd_training_state_t* state, const char* directory, int64_t step, int32_t keep_last);
nxd_status_t nxd_training_state_save_async(nxd_training_state_t* state, const char* directory, int64_t step, int32_t keep_last);
nxd_status_t nxd_training_state_wait(nxd_training_state_t* state, int64_t timeout_ms);
nxd_status_t nxd_training_state_load_newest(nxd_training_state_t* state, const char* directory, int32_t verify, int64_t* out_step);
nxd_status_t nxd_training_state_snapshot(nxd_training_state_t* state, nxd_checkpoint_t* checkpoint);
nxd_status_t nxd_training_state_restore(nxd_training_state_t* state, nxd_checkpoint_t* checkpoint);
void nxd_training_state_destroy(nxd_training_state_t* state);
"""
