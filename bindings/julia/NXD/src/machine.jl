"Floating-point operations per second of square products of `T`, `Float32` or `BFloat16`."
measure_gemm_peak(T::Type = Float32, n::Integer = 0) =
    value(out -> nxd_measure_gemm_peak(dtype(T), n, out), Cdouble)

"Ends the threads that are kept for the calling thread between calls."
release_threads() = check(nxd_release_threads())

"Figures of the pool that tensors are drawn from, and of the contexts' arenas."
memory_stats() = fields_of(filled(nxd_memory_get_stats, nxd_memory_stats_t))

"Bounds what the pool hands out; 0: no bound."
memory_cap!(bytes::Integer) = check(nxd_memory_set_cap(bytes))
"Gives the pool's unused memory back to the system."
memory_trim() = check(nxd_memory_trim())

"True if ATen takes the memory of new CPU tensors from the pool too."
aten_pool() = number(nxd_memory_get_aten_pool) != 0
aten_pool!(on::Bool) = check(nxd_memory_set_aten_pool(on))

"""
    profile(f)

Calls `f` and gives what the library spent time on meanwhile: (name, seconds, operations, calls) of
each phase.
"""
function profile(f)
    check(nxd_profile_start())
    try
        f()
    finally
        check(nxd_profile_stop())
    end
    [fields_of(filled(out -> nxd_profile_get_phase(phase, out), nxd_phase_stats_t))
     for (name, phase) in short_names(nxd_phase_t) if phase >= 0]
end
