#pragma once

#include <cstddef>
#include <string>

#include "engine/graph/graph.h"

namespace nxd {

// Which output of a traced model is the loss, by its path (Module::output_paths). The path may end
// before the loss where nothing else lies below it. INVALID_ARGUMENT, with the nearest paths, where
// it leads to no output or to several, to one that the trace did not ask for, or to one that is no
// scalar.
size_t find_loss(const Graph& graph, const std::string& path);

}  // namespace nxd
