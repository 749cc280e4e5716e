#pragma once

#include <cstdint>
#include <string>

#include "core/base/philox.h"
#include "core/layout/shard_spec.h"

// The bits of dropout, of modules and of layers over buffers.
namespace nxd {

// The site of a layer of this name, before a step and a microbatch are chosen.
RandomSite dropout_site(uint64_t seed, const std::string& name);

// Sets the mask, which has the sizes of a rank's part and is in C order, to 1 where an element is
// kept and to 0 elsewhere; drawn by global index. dim: the one that ranks have parts of; -1: each
// has the whole array.
void draw_kept(const RandomSite& site, ShardSpec::Shape part, int dim, int rank, int ranks,
               double keep_probability, uint8_t* mask);

}  // namespace nxd
