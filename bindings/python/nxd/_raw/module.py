# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/module.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from nxd._raw.base import DType, Device
from nxd._raw.weights import Init

NAMES = """
typedef int32_t nxd_mismatch_t;
typedef struct nxd_module nxd_module_t;
typedef struct nxd_parameter nxd_parameter_t;
typedef struct nxd_tape nxd_tape_t;
typedef struct nxd_load_report nxd_load_report_t;
typedef struct nxd_parameter_options nxd_parameter_options_t;
"""

TYPES = """
typedef nxd_status_t (*nxd_forward_fn)(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs, void* user_data);
typedef nxd_status_t (*nxd_initializer_fn)(const char* name, const int64_t* global_shape, size_t ndim, int64_t first, double* values, size_t count, void* user_data);
typedef nxd_status_t (*nxd_grad_hook_fn)(nxd_parameter_t* parameter, void* user_data);
struct nxd_parameter_options {
  size_t struct_size;
  nxd_dtype_t dtype;
  int32_t has_shard_dim;
  int32_t sequence_parallel;
  nxd_init_t init;
  double init_a;
  double init_b;
  nxd_device_t device;
  int32_t shard_dim;
};
"""

FUNCTIONS = """
nxd_status_t nxd_module_create(nxd_context_t* ctx, const char* class_name, nxd_forward_fn forward, void* user_data, nxd_destroy_fn destroy, nxd_module_t** out_module);
nxd_status_t nxd_module_create_sequential(nxd_context_t* ctx, nxd_module_t* const* children, size_t num_children, nxd_module_t** out_module);
void nxd_module_destroy(nxd_module_t* module);
nxd_status_t nxd_module_add_child(nxd_module_t* parent, const char* name, nxd_module_t* child);
nxd_status_t nxd_parameter_options_init(nxd_parameter_options_t* options, size_t size);
nxd_status_t nxd_module_add_parameter(nxd_module_t* module, const char* name, const int64_t* global_shape, int32_t ndim, const nxd_parameter_options_t* options, nxd_parameter_t** out_parameter);
nxd_status_t nxd_module_add_buffer(nxd_module_t* module, const char* name, nxd_tensor_t* tensor, int32_t is_saved);
nxd_status_t nxd_module_get_buffer_count(nxd_module_t* root, size_t* out_count);
nxd_status_t nxd_module_get_buffer_name(nxd_module_t* root, size_t index, char* buf, size_t cap, size_t* out_needed);
nxd_status_t nxd_module_share_buffer(nxd_module_t* root, const char* name, nxd_tensor_t** out_tensor);
nxd_status_t nxd_module_tie(nxd_module_t* root, const char* owner_path, const char* alias_path);
nxd_status_t nxd_module_forward(nxd_module_t* module, nxd_tensor_t* const* inputs, size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs);
nxd_status_t nxd_module_forward_tape(nxd_module_t* module, nxd_tensor_t* const* inputs, size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs, nxd_tape_t** out_tape);
nxd_status_t nxd_tape_backward(nxd_tape_t* tape, nxd_tensor_t* const* grad_outputs, size_t num_outputs, nxd_tensor_t** out_grad_inputs, size_t num_inputs);
void nxd_tape_destroy(nxd_tape_t* tape);
nxd_status_t nxd_module_get_class_name(nxd_module_t* module, const char** out_name);
nxd_status_t nxd_module_find_module(nxd_module_t* root, const char* path, nxd_module_t** out_module);
nxd_status_t nxd_module_get_child_count(nxd_module_t* module, size_t* out_count);
nxd_status_t nxd_module_get_child(nxd_module_t* module, size_t index, nxd_module_t** out_child, const char** out_name);
nxd_status_t nxd_module_set_training(nxd_module_t* module, int32_t training);
nxd_status_t nxd_module_initialize(nxd_module_t* root, uint64_t seed);
nxd_status_t nxd_parameter_set_initializer(nxd_parameter_t* parameter, nxd_initializer_fn initializer, void* user_data, nxd_destroy_fn destroy);
nxd_status_t nxd_module_set_initializer(nxd_module_t* root, nxd_initializer_fn initializer, void* user_data, nxd_destroy_fn destroy);
nxd_status_t nxd_set_deferred_init(int32_t deferred, int32_t* out_previous);
nxd_status_t nxd_move_model_to_device(nxd_module_t* root, nxd_device_t device);
nxd_status_t nxd_module_cast(nxd_module_t* root, nxd_dtype_t dtype);
nxd_status_t nxd_module_get_parameter_count(nxd_module_t* root, size_t* out_count);
nxd_status_t nxd_module_get_parameter(nxd_module_t* root, size_t index, nxd_parameter_t** out_parameter, const char** out_name);
nxd_status_t nxd_module_find_parameter(nxd_module_t* root, const char* name, nxd_parameter_t** out_parameter);
nxd_status_t nxd_parameter_get_tensor(nxd_parameter_t* parameter, nxd_tensor_t** out_tensor);
nxd_status_t nxd_parameter_get_global_shape(nxd_parameter_t* parameter, int64_t* shape, size_t cap, size_t* out_ndim);
nxd_status_t nxd_parameter_get_shard(nxd_parameter_t* parameter, int32_t* out_dim, int64_t* begins, int64_t* ends, size_t cap, size_t* out_ranges);
nxd_status_t nxd_parameter_set_full(nxd_parameter_t* parameter, nxd_tensor_t* full);
nxd_status_t nxd_parameter_gather_full(nxd_parameter_t* parameter, nxd_tensor_t** out_full);
nxd_status_t nxd_parameter_gather_full_grad(nxd_parameter_t* parameter, nxd_tensor_t** out_full);
nxd_status_t nxd_parameter_set_trainable(nxd_parameter_t* parameter, int32_t trainable);
nxd_status_t nxd_parameter_set_grad_hook(nxd_parameter_t* parameter, nxd_grad_hook_fn hook, void* user_data, nxd_destroy_fn destroy);
nxd_status_t nxd_module_zero_grad(nxd_module_t* root);
nxd_status_t nxd_load_report_get_count(nxd_load_report_t* report, nxd_mismatch_t kind, size_t* out_count);
nxd_status_t nxd_load_report_get_name(nxd_load_report_t* report, nxd_mismatch_t kind, size_t index, const char** out_name);
void nxd_load_report_destroy(nxd_load_report_t* report);
nxd_status_t nxd_module_load_safetensors(nxd_module_t* root, const char* path, int32_t strict, nxd_load_report_t** out_report);
nxd_status_t nxd_module_save_safetensors(nxd_module_t* root, const char* path);
nxd_status_t nxd_module_snapshot(nxd_module_t* root, nxd_checkpoint_t* checkpoint, const char* name);
"""


class Mismatch(IntEnum):
    """Kinds of mismatch."""

    INVALID = -1
    # a parameter that the file lacks
    MISSING = 0
    # a tensor that the model lacks
    UNEXPECTED = 1
    # a tensor of another shape than the parameter's
    SHAPE = 2


class ParameterOptions(TypedDict, total=False):
    """How a parameter of the caller's is sharded and initialised."""

    # F32 (0), F64 or BF16
    dtype: DType | str
    # 1: shard_dim is split over tensor-parallel ranks; 0: replicated
    has_shard_dim: int
    # 1: its gradient is partial per tensor-parallel rank and summed
    sequence_parallel: int
    # DEFAULT: zeros
    init: Init | str
    init_a: float
    init_b: float
    # META: without values until nxd_move_model_to_device or nxd_pp_create
    device: Device | str
    shard_dim: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_parameter_options_t": {
        "dtype": DType,
        "init": Init,
        "device": Device,
    },
}
