#pragma once

#include "engine/device/graph_program.h"

namespace nxd {

// Makes device xla:0 the recorded one for this process; to be called before the first tensor on it
// is made. The compiler takes the graphs; null: they are replayed on the CPU. The first call
// counts. UNSUPPORTED when another library has the device already.
void use_recorded_device(GraphCompiler compiler);

}  // namespace nxd
