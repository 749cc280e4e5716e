# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/model.h."""

from __future__ import annotations

from typing import TypedDict

from nxd._raw.base import DType, Device

NAMES = """
typedef struct nxd_model_options nxd_model_options_t;
"""

TYPES = """
struct nxd_model_options {
  size_t struct_size;
  nxd_dtype_t dtype;
  nxd_device_t device;
  int32_t sequence_parallel;
  int32_t reserved;
};
"""

FUNCTIONS = """
nxd_status_t nxd_model_options_init(nxd_model_options_t* options, size_t size);
nxd_status_t nxd_model_create(nxd_context_t* ctx, const char* config_json, const nxd_model_options_t* options, nxd_module_t** out_model);
nxd_status_t nxd_model_from_pretrained(nxd_context_t* ctx, const char* directory, const nxd_model_options_t* options, nxd_module_t** out_model);
nxd_status_t nxd_model_from_torchscript(nxd_context_t* ctx, const char* path, nxd_module_t** out_module);
nxd_status_t nxd_model_save_torchscript(nxd_module_t* root, const char* path);
nxd_status_t nxd_module_get_output_count(nxd_module_t* module, size_t* out_count);
nxd_status_t nxd_module_get_output_path(nxd_module_t* module, size_t index, const char** out_path);
nxd_status_t nxd_model_get_step_flops(nxd_module_t* model, int64_t batch, int64_t sequence, double* out_flops);
"""


class ModelOptions(TypedDict, total=False):
    """Options of nxd_model_create."""

    # of the parameters: F32 (0), F64, BF16
    dtype: DType | str
    device: Device | str
    # 1: norms and residuals on slices of the sequence
    sequence_parallel: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_model_options_t": {
        "dtype": DType,
        "device": Device,
    },
}
