#pragma once

#include <cstdint>
#include <string>

#include "core/base/philox.h"
#include "core/layout/shard_spec.h"

// The bits of dropout, of modules and of layers over buffers.
namespace nxd {

// The site of a layer of this name, before a step and a microbatch are chosen.
RandomSite dropout_site(uint64_t seed, const std::string& name);

// The shard that a rank's part of these sizes is. dim: the one that ranks have equal parts of; -1:
// each has the whole array.
ShardSpec dropout_shard(ShardSpec::Shape part, int dim, int rank, int ranks);

// Sets the mask, which has the sizes of a rank's shard and is in C order, to 1 where an element is
// kept and to 0 elsewhere; drawn by global index.
void draw_kept(const RandomSite& site, const ShardSpec& shard, double keep_probability,
               uint8_t* mask);

}  // namespace nxd
