# Generated from include/nxd.h by scripts/bindings: do not edit.

struct nxd_memory_stats_t
    struct_size::Csize_t
    bytes_in_use::UInt64
    bytes_reserved::UInt64
    peak_bytes_in_use::UInt64
    allocations::UInt64
    system_allocations::UInt64
    cap_bytes::UInt64
    arena_bytes_in_use::UInt64
    arena_bytes_reserved::UInt64
end

@call libnxd_core nxd_arena_alloc(ctx::Ptr{nxd_context_t}, size::Csize_t,
    out_data::Ptr{Ptr{Cvoid}})::nxd_status_t
@call libnxd_core nxd_arena_free(ctx::Ptr{nxd_context_t}, data::Ptr{Cvoid})::nxd_status_t
@call libnxd_core nxd_memory_get_stats(out_stats::Ptr{nxd_memory_stats_t})::nxd_status_t
@call libnxd_core nxd_memory_set_cap(bytes::UInt64)::nxd_status_t
@call libnxd_core nxd_memory_trim()::nxd_status_t
