#pragma once

namespace nxd {

// The end of the step that the calling thread has recorded, and that has not run yet. The engine
// records, and this library knows no tensors: it calls what the engine has set, if that is loaded.
void set_recorded_step_end(void (*end)());
void end_recorded_step();

}  // namespace nxd
