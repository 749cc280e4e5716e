# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/checkpoint.h."""

from __future__ import annotations

NAMES = """
typedef struct nxd_checkpoint nxd_checkpoint_t;
"""

FUNCTIONS = """
nxd_status_t nxd_checkpoint_create(nxd_context_t* ctx, const char* directory, int64_t step, nxd_checkpoint_t** out_checkpoint);
nxd_status_t nxd_checkpoint_open(nxd_context_t* ctx, const char* directory, int64_t step, int32_t verify, nxd_checkpoint_t** out_checkpoint);
nxd_status_t nxd_checkpoint_open_newest(nxd_context_t* ctx, const char* directory, int32_t verify, nxd_checkpoint_t** out_checkpoint);
nxd_status_t nxd_checkpoint_get_step(nxd_checkpoint_t* checkpoint, int64_t* out_step);
nxd_status_t nxd_checkpoint_get_path(nxd_checkpoint_t* checkpoint, const char* name, char* buf, size_t cap, size_t* out_needed);
nxd_status_t nxd_checkpoint_set_value(nxd_checkpoint_t* checkpoint, const char* key, const char* value);
nxd_status_t nxd_checkpoint_get_value(nxd_checkpoint_t* checkpoint, const char* key, char* buf, size_t cap, size_t* out_needed);
nxd_status_t nxd_checkpoint_publish(nxd_checkpoint_t* checkpoint, int32_t keep_last);
nxd_status_t nxd_checkpoint_publish_async(nxd_checkpoint_t* checkpoint, int32_t keep_last);
nxd_status_t nxd_checkpoint_wait(nxd_checkpoint_t* checkpoint, int64_t timeout_ms);
nxd_status_t nxd_checkpoint_test(nxd_checkpoint_t* checkpoint, int32_t* out_done);
nxd_status_t nxd_checkpoint_restore_random_state(nxd_checkpoint_t* checkpoint);
void nxd_checkpoint_destroy(nxd_checkpoint_t* checkpoint);
"""
