# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_job_t end

struct nxd_spawn_options_t
    struct_size::Csize_t
    num_processes::Int32
    omp_num_threads::Int32
    argv::Ptr{Cstring}
end

@call libnxd_core nxd_spawn_options_init(options::Ptr{nxd_spawn_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_spawn(options::Ptr{nxd_spawn_options_t},
    out_job::Ptr{Ptr{nxd_job_t}})::nxd_status_t
@call libnxd_core nxd_job_wait(job::Ptr{nxd_job_t}, timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_job_kill(job::Ptr{nxd_job_t}, signal_number::Int32)::nxd_status_t
@call libnxd_core nxd_job_get_size(job::Ptr{nxd_job_t}, out_size::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_job_get_exit_code(job::Ptr{nxd_job_t}, rank::Int32, out_running::Ptr{Int32},
    out_exit_code::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_job_get_pid(job::Ptr{nxd_job_t}, rank::Int32,
    out_pid::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_job_destroy(job::Ptr{nxd_job_t})::Cvoid

fill_defaults(r::Ref{nxd_spawn_options_t}) = nxd_spawn_options_init(r, sizeof(nxd_spawn_options_t))
