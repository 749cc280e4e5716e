#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Scalar.h>

#include <cstdint>

namespace nxd {

// Replaces kernels of libtorch that give wrong values, in the whole process, from the first call
// on. Two of 1.13 take the elements of a transposed tensor in the order in which they lie:
//   gelu_backward (f32, not the tanh form): its gradient, where the input is contiguous
//   masked_scatter_: the tensor that it writes to
// One multiplies what it is to ignore, which may be NaN, by a beta of 0:
//   baddbmm: what its result's memory holds before, where matrices are small
// Two of 1.13 take a transposed convolution for a plain one in bf16, where the processor has
// AVX-512; the values are of f32 and rounded now:
//   _convolution, which all convolutions end in, and convolution_backward
// oneDNN 2.6 and 3.7, which libtorch calls, read and write other memory than theirs for the
// gradient of a weight that is larger than the image; the image is padded in memory of its own now:
//   convolution_backward (f32, bf16): gradients of weight and bias
// One divides by 0 where there are no groups, no elements or more groups than channels, and reads
// other memory where the groups are less than none or leave channels over:
//   native_channel_shuffle
void mend_kernels();

// Rejects groups that cannot be shuffled.
void check_channel_groups(const at::Tensor& self, int64_t groups);

// baddbmm as mended. It is registered along with the library's own products.
at::Tensor mended_baddbmm(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a,
                          const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor& mended_baddbmm_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& a,
                                    const at::Tensor& b, const at::Scalar& beta,
                                    const at::Scalar& alpha);
at::Tensor& mended_baddbmm_out(c10::DispatchKeySet keys, const at::Tensor& self,
                               const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                               const at::Scalar& alpha, at::Tensor& out);

}  // namespace nxd
