# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/store.h."""

from __future__ import annotations

NAMES = """
typedef struct nxd_store nxd_store_t;
typedef struct nxd_store_callbacks nxd_store_callbacks_t;
"""

TYPES = """
struct nxd_store_callbacks {
  size_t struct_size;
  void* user_data;
  nxd_destroy_fn destroy;
  nxd_status_t (*set)(const char*, const uint8_t*, size_t, void*);
  nxd_status_t (*get)(const char*, uint8_t*, size_t, size_t*, int32_t*, void*);
  nxd_status_t (*add)(const char*, int64_t, int64_t*, void*);
};
"""

FUNCTIONS = """
nxd_status_t nxd_store_create_local(nxd_store_t** out_store);
nxd_status_t nxd_store_create_file(const char* path, nxd_store_t** out_store);
nxd_status_t nxd_store_create_tcp(const char* host, int32_t port, int32_t is_server, int64_t timeout_ms, nxd_store_t** out_store);
nxd_status_t nxd_store_create_callbacks(const nxd_store_callbacks_t* callbacks, nxd_store_t** out_store);
nxd_status_t nxd_store_get_port(nxd_store_t* store, int32_t* out_port);
nxd_status_t nxd_store_set(nxd_store_t* store, const char* key, const void* value, size_t size);
nxd_status_t nxd_store_get(nxd_store_t* store, const char* key, int64_t timeout_ms, void* buf, size_t cap, size_t* out_size);
nxd_status_t nxd_store_add(nxd_store_t* store, const char* key, int64_t amount, int64_t* out_value);
void nxd_store_destroy(nxd_store_t* store);
"""
