#pragma once

#include <string>
#include <vector>

#include "engine/device/recorded_graph.h"
#include "engine/stablehlo/exchange_lowering.h"
#include "engine/stablehlo/lowering.h"

namespace nxd {

// A graph as the text of a StableHLO module. Its function takes the leaves that are buffers, then a
// vector of the f64 numbers and one of the i64 numbers that the host gives, where there are any.
// It gives the kept results. All graphs of one hash have the same text.
struct StableHloModule {
  std::string text{};
  std::vector<int> buffers{};  // leaves, by their slots
  std::vector<HloScalars::Source> floats{}, integers{};
  std::vector<int> host_nodes{};  // nodes that the function calls the host for, in order
};

// The function of the host's that a module calls for a node, which its attribute "node" numbers.
// Random bits of ATen's operators and checks of values are such calls, ordered by a token; so is an
// operator or a function without a lowering. The checks of HostChecks are made before, and left
// out; all checks are where the plug-in cannot call the host. Collectives are calls, unless
// replicas exchange: then a call has the number of its replica as a last operand.
inline constexpr const char* kHostNodeFunction = "nxd_recorded_node";

// For a plug-in of this kind; its device may have other dtypes than the graph.
StableHloModule emit_stablehlo(const RecordedGraph& graph, const ModuleReplicas& replicas = {},
                               const PjrtTarget& target = {});

}  // namespace nxd
