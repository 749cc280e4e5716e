#pragma once

namespace nxd {

// True if ATen takes the memory of new CPU tensors from the kernels' pool; for the process, from
// any thread, at any time: each block goes back to where it came from. At first as NXD_ATEN_POOL
// says, else whether libnxd brought libtorch into the process.

// INVALID_STATE when the process has an allocator that ATen ranks higher.
void set_aten_pool(bool on);
bool aten_pool_is_on() noexcept;

// True if the program, or a library of it other than libnxd, uses libtorch: it was loaded before
// libnxd was, or is named by a loaded object's list of needed libraries.
bool others_use_libtorch() noexcept;

}  // namespace nxd
