#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace nxd {

// A graph cut into stages that follow one another. A pure function of the graph and the cuts.
struct Partition {
  struct Stage {
    std::vector<int> nodes;        // in order; inputs, parameters and constants are in each
                                   // stage that uses them
    std::vector<ValueId> inputs;   // from the stage before, in the order of their values
    std::vector<ValueId> outputs;  // to the stage after: also what only later ones use
  };
  std::vector<Stage> stages;

  // A parameter that several stages use: the first of them owns it.
  struct Shared {
    std::string name;  // canonical
    std::vector<int> stages;
  };
  std::vector<Shared> shared;
};

// cuts: paths of modules that the graph calls, in order, each the last of its stage: the stage ends
// when the module returns, for the last time if it is called several times. INVALID_ARGUMENT with
// near names for one that is not called, for one that is named twice or out of order, leaves a
// stage empty, or parts an operator from a tensor that it writes to.
Partition partition_at(const Graph& graph, const std::vector<std::string>& cuts);

// Names of the cuts that divide the modules of a class evenly, the remainder going to the later
// stages. INVALID_ARGUMENT for a class that is not called, and for more stages than such modules.
std::vector<std::string> even_cuts(const Graph& graph, const std::string& layer_class, int stages);
// The cuts that make the most expensive stage cheapest; costs: of each node.
std::vector<std::string> cost_cuts(const Graph& graph, const std::string& layer_class, int stages,
                                   const std::vector<double>& costs);
// Costs of each node's forward, from shapes alone: floating-point operations of its products, and
// one for each element that it gives.
std::vector<double> node_costs(const Graph& graph);

}  // namespace nxd
