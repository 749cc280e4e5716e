#pragma once

#include <vector>

#include "core/model/model_sizes.h"
#include "core/planner/part_sizes.h"
#include "nxd.h"

namespace nxd {

// Blocks of one size, in bytes.
struct BlockCount {
  double count, bytes;
};
using BlockList = std::vector<BlockCount>;

// Memory of the system that blocks of the pool take. The pool keeps a block for later ones of its
// own class alone.
double pool_bytes(const BlockList& blocks);
// The same for lists of blocks that are in use at different times, of each class the most.
double pool_bytes_of_most(const std::vector<const BlockList*>& lists);
// The same of blocks that one list can take from another.
double shared_pool_bytes(const BlockList& one, const BlockList& other);

// A part of the model on one rank, for one microbatch.
struct PartMemory {
  BlockList matrices;    // bytes as parameters
  BlockList kept;        // from the forward pass to the backward
  BlockList transient;   // while it is computed
  BlockList workspaces;  // of products, from the first step on
  double packing = 0;    // bytes of malloc's that the largest product copies operands into
};

// layer for each layer of a stage.
struct ModelMemory {
  PartMemory embedding, layer, head;
};

// The layout has been checked. Pure.
ModelMemory model_memory(const ModelSizes& model, const nxd_plan_machine_t& machine,
                         const nxd_plan_layout_t& layout);

}  // namespace nxd
