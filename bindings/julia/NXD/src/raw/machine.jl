# Generated from include/nxd.h by scripts/bindings: do not edit.

@code nxd_phase_t begin
    NXD_PHASE_INVALID = -1 => "invalid"
    NXD_PHASE_GEMM_FORWARD = 0 => "gemm_forward"
    NXD_PHASE_GEMM_INPUT_GRAD = 1 => "gemm_input_grad"
    NXD_PHASE_GEMM_WEIGHT_GRAD = 2 => "gemm_weight_grad"
    NXD_PHASE_ATTENTION = 3 => "attention"
    NXD_PHASE_CROSS_ENTROPY = 4 => "cross_entropy"
    NXD_PHASE_ELEMENTWISE = 5 => "elementwise"
    NXD_PHASE_OPTIMIZER = 6 => "optimizer"
    NXD_PHASE_COMMUNICATION = 7 => "communication"
end

struct nxd_phase_stats_t
    struct_size::Csize_t
    name::Cstring
    seconds::Cdouble
    operations::Cdouble
    calls::UInt64
    waiting_seconds::Cdouble
end

@call libnxd_core nxd_cpu_mode()::Int32
@call libnxd_core nxd_get_device(out_device::Ptr{nxd_device_t})::nxd_status_t
@call libnxd_core nxd_measure_gemm_peak(dtype::nxd_dtype_t, size::Int32,
    out_rate::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_release_threads()::nxd_status_t
@call libnxd_core nxd_profile_start()::nxd_status_t
@call libnxd_core nxd_profile_stop()::nxd_status_t
@call libnxd_core nxd_profile_get_phase(phase::nxd_phase_t,
    out_stats::Ptr{nxd_phase_stats_t})::nxd_status_t
