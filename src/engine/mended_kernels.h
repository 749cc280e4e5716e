#pragma once

namespace nxd {

// Replaces kernels of libtorch that give wrong values, in the whole process, from the first call
// on: those of 1.13 that take the elements of a transposed tensor in the order in which they lie.
//   gelu_backward (f32, not the tanh form): its gradient, where the input is contiguous
//   masked_scatter_: the tensor that it writes to
void mend_kernels();

}  // namespace nxd
