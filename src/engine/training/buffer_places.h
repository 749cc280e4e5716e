#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"
#include "engine/graph/partition.h"
#include "engine/module/buffers.h"

namespace nxd {

// A buffer of a model that is cut into stages.
struct BufferPlace {
  NamedBuffer named;
  std::set<int> users;  // the pipeline's ranks whose stages use it
  // Ranks whose stages use it or another that shares its memory: each has a copy of that.
  std::set<int> copies;
  // The ranks that save it: its users, or, where there are none, one with parameters of its
  // module, or else the first.
  std::set<int> keepers;
};

// All of the root, in its order; the same on all ranks.
std::vector<BufferPlace> buffer_places(const Module& root, const Graph& graph,
                                       const Partition& partition, const PipelineShape& shape);

}  // namespace nxd
