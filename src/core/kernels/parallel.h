#pragma once

#include <omp.h>

#include <cstdint>
#include <exception>

#include "core/base/error.h"

namespace nxd::kernels {

// Threads of the calling thread's OpenMP team that a kernel may use here.
inline int team_size() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

// Ends the threads of that team until a kernel needs them again; INVALID_STATE inside a parallel
// region.
inline void release_team() {
  const bool released =
      !omp_in_parallel() && omp_pause_resource(omp_pause_soft, omp_get_initial_device()) == 0;
  check_state(released, "inside a parallel region of OpenMP its threads cannot be released");
}

// Calls body(begin, end) for ranges that cover 0 ... count: one range, or one per thread when the
// work (count times work_per_item, in elements touched or so) is worth waking a team for. What
// body computes for an item must not depend on the range, then nothing depends on the threads.
template <class Body>
void parallel_ranges(int64_t count, int64_t work_per_item, Body&& body) {
  constexpr int64_t kWorthATeam = 1 << 17;
  if (count <= 0) return;
  const int threads = count * work_per_item < kWorthATeam ? 1 : team_size();
  if (threads <= 1 || count == 1) {
    body(int64_t{0}, count);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel num_threads(threads)
  {
    const int64_t size = omp_get_num_threads();
    const int64_t index = omp_get_thread_num();
    const int64_t begin = count * index / size;
    const int64_t end = count * (index + 1) / size;
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
#pragma omp critical(nxd_kernel_failure)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace nxd::kernels
