# Generated from include/nxd.h by scripts/bindings: do not edit.

@code nxd_status_t begin
    NXD_OK = 0 => "ok"
    NXD_ERROR_INVALID_ARGUMENT = -1 => "error_invalid_argument"
    NXD_ERROR_INVALID_STATE = -2 => "error_invalid_state"
    NXD_ERROR_UNSUPPORTED = -3 => "error_unsupported"
    NXD_ERROR_OUT_OF_MEMORY = -4 => "error_out_of_memory"
    NXD_ERROR_TIMEOUT = -5 => "error_timeout"
    NXD_ERROR_PEER_LOST = -6 => "error_peer_lost"
    NXD_ERROR_ABORTED = -7 => "error_aborted"
    NXD_ERROR_IO = -8 => "error_io"
    NXD_ERROR_CORRUPT = -9 => "error_corrupt"
    NXD_ERROR_INTERNAL = -10 => "error_internal"
    NXD_ERROR_ABI_MISMATCH = -11 => "error_abi_mismatch"
    NXD_ERROR_USER = -12 => "error_user"
end

@code nxd_dtype_t begin
    NXD_DTYPE_INVALID = -1 => "invalid"
    NXD_DTYPE_F32 = 0 => "f32"
    NXD_DTYPE_F64 = 1 => "f64"
    NXD_DTYPE_BF16 = 2 => "bf16"
    NXD_DTYPE_F16 = 3 => "f16"
    NXD_DTYPE_I32 = 4 => "i32"
    NXD_DTYPE_I64 = 5 => "i64"
    NXD_DTYPE_U8 = 6 => "u8"
    NXD_DTYPE_I8 = 7 => "i8"
    NXD_DTYPE_I16 = 8 => "i16"
    NXD_DTYPE_BOOL = 9 => "bool"
end

@code nxd_toggle_t begin
    NXD_TOGGLE_INVALID = -1 => "invalid"
    NXD_TOGGLE_DEFAULT = 0 => "default"
    NXD_TOGGLE_ON = 1 => "on"
    NXD_TOGGLE_OFF = 2 => "off"
end

@code nxd_parameter_state_t begin
    NXD_PARAMETER_STATE_INVALID = -1 => "invalid"
    NXD_PARAMETER_STATE_NONE = 0 => "none"
    NXD_PARAMETER_STATE_OLD = 1 => "old"
    NXD_PARAMETER_STATE_NEW = 2 => "new"
    NXD_PARAMETER_STATE_PARTIAL = 3 => "partial"
end

@code nxd_log_level_t begin
    NXD_LOG_INVALID = -1 => "invalid"
    NXD_LOG_DEBUG = 0 => "debug"
    NXD_LOG_INFO = 1 => "info"
    NXD_LOG_WARN = 2 => "warn"
    NXD_LOG_ERROR = 3 => "error"
    NXD_LOG_OFF = 4 => "off"
end

@code nxd_device_t begin
    NXD_DEVICE_INVALID = -1 => "invalid"
    NXD_DEVICE_CPU = 0 => "cpu"
    NXD_DEVICE_NEURON = 1 => "neuron"
    NXD_DEVICE_META = 2 => "meta"
    NXD_DEVICE_XLA = 3 => "xla"
end

struct nxd_error_info_t
    struct_size::Csize_t
    status::nxd_status_t
    root_rank::Int32
    sequence::UInt64
    group::Cstring
    operation::Cstring
    step::Int64
    parameters::nxd_parameter_state_t
    reserved::Int32
end

@call libnxd_core nxd_abi_version()::UInt32
@call libnxd_core nxd_version()::Cstring
@call libnxd_core nxd_status_string(status::nxd_status_t)::Cstring
@call libnxd_core nxd_last_error()::Cstring
@call libnxd_core nxd_last_error_copy(buf::Ptr{UInt8}, cap::Csize_t)::Csize_t
@call libnxd_core nxd_set_last_error(status::nxd_status_t, message::Cstring)::Cvoid
@call libnxd_core nxd_last_error_info(out_info::Ptr{nxd_error_info_t})::nxd_status_t
@call libnxd_core nxd_python_capsule_destroy(capsule::Ptr{Cvoid})::Cvoid
@call libnxd_core nxd_log_set_callback(callback::Ptr{Cvoid}, user_data::Ptr{Cvoid},
    destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd_core nxd_log_set_level(level::nxd_log_level_t)::nxd_status_t
@call libnxd_core nxd_build_info()::Cstring
@call libnxd_core nxd_environment_table()::Cstring
