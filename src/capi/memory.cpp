// nxd/memory.h: arenas and the pool.
#include "capi/handles.h"
#include "capi/output_struct.h"
#include "core/base/last_error.h"
#include "core/comm/memory/arena.h"
#include "core/kernels/memory_pool.h"

using namespace nxd;

nxd_status_t nxd_arena_alloc(nxd_context_t* ctx, size_t size, void** out_data) {
  return guard([&] {
    auto& out = output(out_data, "out_data");
    out = unwrap(ctx).arena().lend(size);
  });
}

nxd_status_t nxd_arena_free(nxd_context_t* ctx, void* data) {
  return guard([&] {
    Arena& arena = unwrap(ctx).arena();
    if (data) arena.take_back(data);
  });
}

nxd_status_t nxd_memory_get_stats(nxd_memory_stats_t* out_stats) {
  return guard([&] {
    OutputStruct out(out_stats, "out_stats");
    const kernels::PoolStats pool = kernels::pool_stats();
    const Arena::Stats arenas = Arena::stats();
    out.write({sizeof(nxd_memory_stats_t), pool.bytes_in_use, pool.bytes_reserved,
               pool.peak_bytes_in_use, pool.allocations, pool.system_allocations, pool.cap,
               arenas.bytes_in_use, arenas.bytes_reserved});
  });
}

nxd_status_t nxd_memory_set_cap(uint64_t bytes) {
  return guard([&] { kernels::pool_set_cap(bytes); });
}

nxd_status_t nxd_memory_trim(void) {
  return guard([] { kernels::pool_trim(); });
}
