#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/tensor_parallel/array.h"
#include "core/world/context.h"

namespace nxd {

// A tensor's memory, as layers over buffers take it; the tensor must live as long.
Array array_of(const at::Tensor& x);

// True if layers take the fused kernels for this tensor: f32 or bf16 on the CPU, or on the recorded
// device where graphs are replayed; unless the context asks for plain ATen operators, or this
// thread is tracing and there are no values.
bool use_fused(const Context& context, const at::Tensor& x);

// True also while this thread is tracing, whose shapes are on the meta device.
bool on_same_device(const at::Tensor& a, const at::Tensor& b);

// op(a) op(b) [+ bias], as a new tensor of dtype out; by a kernel where use_fused holds, or would
// in another dtype than f64, else through ATen. Outputs wider than 16-bit inputs are never rounded
// in between. Where an operand has more dimensions than two, all but the last are rows, which the
// result has as a has them.
at::Tensor matrix_product(const Context& context, const at::Tensor& a, bool transpose_a,
                          const at::Tensor& b, bool transpose_b, at::ScalarType out,
                          const at::Tensor& bias = {});

// The sum of a[i] op(b[i]), each as above.
at::Tensor sum_of_products(const Context& context, const std::vector<at::Tensor>& a,
                           at::ArrayRef<at::Tensor> b, bool transpose_b, at::ScalarType out);

// op(a) op(b) into out, dense and of a dtype as above.
void matrix_product_into(const Context& context, const at::Tensor& a, bool transpose_a,
                         const at::Tensor& b, bool transpose_b, at::Tensor& out);

// out += op(a) op(b), in place.
void add_matrix_product(const Context& context, const at::Tensor& a, bool transpose_a,
                        const at::Tensor& b, bool transpose_b, at::Tensor& out);

// x in another dtype; x itself when it has it. The result comes from the pool where use_fused
// holds.
at::Tensor cast(const Context& context, const at::Tensor& x, at::ScalarType dtype);

// Sum over all dimensions but the last, in f32 or wider, as the dtype of x.
at::Tensor sum_rows(const at::Tensor& x);

// The dtype in which partial sums of several ranks are exchanged: f32 for 16-bit floats.
at::ScalarType partial_sum_dtype(at::ScalarType dtype);

}  // namespace nxd
