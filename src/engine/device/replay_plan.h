#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/device/graph_program.h"
#include "engine/device/recorded_graph.h"

namespace nxd {

class GraphRounding;

// A graph made ready: a compiler's program, or when each value is used for the last time.
// It has no values of its own, so that all graphs of one hash share it.
class ReplayPlan {
 public:
  // A compiler of null leaves the nodes to be run one after the other.
  ReplayPlan(const RecordedGraph& graph, GraphCompiler compiler);

  // Runs the nodes of a graph of this plan's hash, unless graphs are only extracted; gives the kept
  // results, each with memory of its own, in C order. A result whose node overwrites a leaf is the
  // leaf's tensor; has_overwritten: leaves are no longer what they were. A compiler's program
  // rounds as it does; null: to nearest.
  std::vector<at::Tensor> run(const RecordedGraph& graph, bool* has_overwritten,
                              GraphRounding* rounding) const;

  // Its graphs have all of this in common.
  const RecordedGraph& outline() const { return outline_; }
  bool was_loaded() const { return program_ && program_->was_loaded(); }

 private:
  std::vector<std::vector<int>> last_uses_;  // slots that nothing needs after a node
  // Slots whose values a node that overwrites its inputs must leave as they are.
  std::vector<std::vector<int>> live_slots_;
  RecordedGraph outline_;
  std::unique_ptr<GraphProgram> program_;
};

// The plan of a graph, which is compiled unless it is kept. The process keeps the plans of
// env::most_graphs() graphs, and lets go of the least recently used one for another: runs that hold
// it go on. is_new: the process has not seen the graph yet; of one that had left it is false.
std::shared_ptr<const ReplayPlan> plan_for(const RecordedGraph& graph, bool* is_new);
// Compiles the graphs that come from now on; null: they are replayed. INVALID_ARGUMENT where the
// environment's number of graphs is none.
void set_graph_compiler(GraphCompiler compiler);
bool has_graph_compiler();
// Plans that the process keeps.
size_t plan_count();

}  // namespace nxd
