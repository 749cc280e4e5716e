#pragma once

namespace nxd {

// Adds kernels of the meta device that libtorch 1.13 lacks. An operator that writes to its argument
// runs there before it is recorded, so that a wrong shape is an error of the call.
void add_meta_kernels();

}  // namespace nxd
