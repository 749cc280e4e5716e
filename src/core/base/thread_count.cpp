#include "core/base/thread_count.h"

#include <omp.h>

namespace nxd {

void set_thread_count(int threads) noexcept { omp_set_num_threads(threads); }

}  // namespace nxd
