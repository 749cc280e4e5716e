// A call that ranks make while the memory of one of them is bounded (nxd_memory_set_cap). The bound
// is a process's, so ranks are processes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "nxd.h"
#include "support/ranks.h"

namespace nxd_test {

inline nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

inline uint64_t bytes_in_use() {
  nxd_memory_stats_t stats = {};
  stats.struct_size = sizeof stats;
  NXD_TEST_OK(nxd_memory_get_stats(&stats));
  return stats.bytes_in_use;
}

// Calls, on all ranks of the group, with more and more memory on those that lack it until that is
// enough. All ranks fail alike, and at once. Gives how often it was not.
template <class Call>
int with_more_and_more(nxd_group_t* group, bool lacks, uint64_t step, Call&& call) {
  for (int failures = 0;; ++failures) {
    if (lacks) {
      NXD_TEST_OK(nxd_memory_set_cap(bytes_in_use() + 1 + step * static_cast<uint64_t>(failures)));
    }
    const nxd_status_t status = call();
    const std::string message = status == NXD_OK ? "" : nxd_last_error();
    NXD_TEST_OK(nxd_memory_set_cap(0));
    const bool is_told = status == NXD_ERROR_INVALID_ARGUMENT || status == NXD_ERROR_OUT_OF_MEMORY;
    const bool lacked = status != NXD_OK && message.find("the cap is") != std::string::npos &&
                        (lacks ? status == NXD_ERROR_OUT_OF_MEMORY : is_told);
    if (status != NXD_OK && !NXD_TEST_CHECK(lacked)) {
      std::fprintf(stderr, "after: %s\n", message.c_str());
    }
    // One for a rank that was ready, that has lacked memory, and that came to another end.
    int32_t ends[3] = {status == NXD_OK, lacked, status != NXD_OK && !lacked};
    if (!NXD_TEST_OK(nxd_all_reduce(group, ends, ends, 3, NXD_DTYPE_I32, NXD_REDUCE_MAX))) return 0;
    if (!NXD_TEST_CHECK(ends[0] + ends[1] + ends[2] == 1) || !ends[1]) return failures;
  }
}

}  // namespace nxd_test
