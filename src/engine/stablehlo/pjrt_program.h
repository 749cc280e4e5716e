#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/pjrt/pjrt_client.h"
#include "engine/device/graph_program.h"

namespace nxd {

// The client for ranks that are threads of this process, with a device for each.
PjrtClient& client_of_replicas(const std::vector<int>& ranks);

// The module that the plug-in is given, or would be where graphs are replayed.
std::string stablehlo_of(const RecordedGraph& outline);

// A GraphCompiler: StableHLO, compiled by that plug-in. Leaves that lie as it wants them are not
// copied, and neither are results. The nodes that are left to the host run as they are replayed.
std::unique_ptr<GraphProgram> compile_by_pjrt(const RecordedGraph& outline);

}  // namespace nxd
