#pragma once

#include <vector>

#include "engine/device/recorded_graph.h"

namespace nxd {

// Checks of values that the host makes before a graph runs, so that nothing has run when one fails:
// those of ids and the like, which follow from the graph's leaves by operators and functions that
// give integers and ask no other rank. Other checks have values that the graph computes.
class HostChecks {
 public:
  explicit HostChecks(const RecordedGraph& outline);

  // True of a node that is such a check.
  bool has(size_t node) const { return is_check_[node]; }
  // Throws the first failure of a graph of the outline's hash. tells_peers: as the node does; else
  // nothing is communicated.
  void make(const RecordedGraph& graph, bool tells_peers) const;

 private:
  std::vector<bool> is_check_;  // of each node
  std::vector<size_t> nodes_;   // the checks, and what they look at, in order
};

}  // namespace nxd
