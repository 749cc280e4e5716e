#pragma once

#include "core/layout/shard_spec.h"

namespace nxd {

// The rank-th of size parts of an extent: as many are one longer as it takes.
inline ShardSpec::Range nearly_equal(int64_t extent, int rank, int size) {
  return {extent * rank / size, extent * (rank + 1) / size};
}

}  // namespace nxd
