# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/serialization.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from nxd._raw.base import Toggle

NAMES = """
typedef struct nxd_serialization nxd_serialization_t;
typedef struct nxd_save_options nxd_save_options_t;
"""

TYPES = """
struct nxd_save_options {
  size_t struct_size;
  nxd_toggle_t master_only;
  int32_t each_host;
  const char* const* keys;
  const char* const* values;
  size_t num_values;
};
"""

FUNCTIONS = """
nxd_status_t nxd_save_options_init(nxd_save_options_t* options, size_t size);
nxd_status_t nxd_save(nxd_context_t* ctx, const char* path, const char* const* names, nxd_tensor_t* const* tensors, size_t num_tensors, const nxd_save_options_t* options);
nxd_status_t nxd_serialization_save(nxd_context_t* ctx, const char* path, const char* const* names, nxd_tensor_t* const* tensors, size_t num_tensors, const nxd_save_options_t* options);
nxd_status_t nxd_serialization_load(const char* path, nxd_serialization_t** out_serialization);
nxd_status_t nxd_serialization_get_count(nxd_serialization_t* serialization, size_t* out_count);
nxd_status_t nxd_serialization_get_name(nxd_serialization_t* serialization, size_t index, const char** out_name);
nxd_status_t nxd_serialization_create_tensor(nxd_serialization_t* serialization, const char* name, nxd_device_t device, nxd_tensor_t** out_tensor);
nxd_status_t nxd_serialization_get_value_count(nxd_serialization_t* serialization, size_t* out_count);
nxd_status_t nxd_serialization_get_value(nxd_serialization_t* serialization, size_t index, const char** out_key, const char** out_value);
void nxd_serialization_destroy(nxd_serialization_t* serialization);
"""


class SaveOptions(TypedDict, total=False):
    """Options of nxd_save and nxd_serialization_save."""

    # default on; off: each rank writes, at a path of its own
    master_only: bool | Toggle | None
    # 1: the first rank of each host writes; 0: that of the world
    each_host: int
    # num_values names of texts; copied
    keys: Sequence[str]
    # num_values texts, such as {"1200"}
    values: Sequence[str]
    num_values: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_save_options_t": {
        "master_only": Toggle,
    },
}
