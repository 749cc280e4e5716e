#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/device/recorded_graph.h"
#include "engine/stablehlo/exchange_lowering.h"

namespace nxd {

// Where the ranks of a graph meet that run it as replicas of one program in this process.
struct ReplicaRendezvous {
  int node = -1;  // whose exchange is over the group of all of them; -1: they do not meet
  size_t exchange = 0;
  std::vector<int> ranks{};  // of that group
  // False if another group of this graph has no form over these replicas. Its rank meets the others
  // all the same, whose graphs need not have that group.
  bool as_replicas = true;
};

// Threads of one process meet, if the graph's exchanges are all that ranks do together and one
// group has all ranks.
ReplicaRendezvous rendezvous_of(const RecordedGraph& outline);
// Ranks that meet are replicas. With a plug-in that cannot call the host all ranks of the launch
// are; elsewhere ranks exchange by calls of the host.
ModuleReplicas replicas_of(const RecordedGraph& outline);

using Graphs = std::vector<const RecordedGraph*>;
using RunTogether = std::function<std::vector<std::vector<at::Tensor>>(const Graphs&)>;

// Runs the graphs of all ranks of a group, whose threads call this at a time: one of them runs all,
// in the order of ranks. An error is that of all; has_begun is set unless it came before the run.
// Gives the results of this rank's graph; nothing has run, on any rank, when they are not of one
// program, as the digest tells. 0: this rank's is no program for replicas.
std::optional<std::vector<at::Tensor>> run_as_replica(ProcessGroup& group, uint64_t digest,
                                                      const RecordedGraph& graph,
                                                      const RunTogether& run, bool* has_begun);
// In place of it, for a rank whose graph cannot run: all fail, and nothing has run.
void reject_run(ProcessGroup& group, const Error& error);

}  // namespace nxd
