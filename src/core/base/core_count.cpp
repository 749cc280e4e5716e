#include "core/base/core_count.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

namespace nxd {

// A cpu_set_t has room for 1024 cores, and the kernel of a larger machine takes none that is too
// small for all that it could have.
int usable_cores() noexcept {
  constexpr size_t kMostSets = 1024;
  for (size_t sets = 1; sets <= kMostSets; sets *= 2) {
    const std::unique_ptr<cpu_set_t[]> cores(new (std::nothrow) cpu_set_t[sets]);
    if (!cores) return 1;
    const size_t size = sets * sizeof(cpu_set_t);
    CPU_ZERO_S(size, cores.get());
    if (::sched_getaffinity(0, size, cores.get()) == 0) {
      return std::max(CPU_COUNT_S(size, cores.get()), 1);
    }
    if (errno != EINVAL) return 1;
  }
  return 1;
}

}  // namespace nxd
