#pragma once

#include "core/comm/process_group.h"
#include "core/layout/shard_spec.h"

namespace nxd {

// Puts the shards of a tensor together on every rank of the group that holds them. local is this
// rank's shard, whole has room for all of it; elements that no rank holds stay as they are.
// Collective, also for a rank whose shard is empty. Ranks fail together when one of them lacks
// memory. A replicated tensor is copied.
void gather_shards(ProcessGroup* group, const ShardSpec& shard, nxd_dtype_t dtype,
                   const void* local, void* whole);

}  // namespace nxd
