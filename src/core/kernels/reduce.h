#pragma once

#include <cstddef>

#include "nxd.h"

// Elementwise reductions of several arrays, for collectives. An element's result depends on its
// inputs alone, never on where it lies, on the count, or on the number of threads or outputs.
// Pointers need the alignment of their elements, no more.
namespace nxd::kernels {

// outputs[k][i] = inputs[0][i] o inputs[1][i] o ..., in this order, for every k. dtype is F32, F64,
// BF16, F16, I32 or I64. 16-bit floats are accumulated in f32 and rounded once, to nearest even;
// AVG (floats only) divides at the end; integer sums and products wrap; NaN wins in MAX and MIN.
// The result of several NaN may be any of them.
// An output may be one of the inputs (the same pointer) but may not overlap one otherwise. Each
// input is read once and each output written once, front to back.
void reduce_to_all(const void* const* inputs, size_t n_inputs, void* const* outputs,
                   size_t n_outputs, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);

// The same with the accumulated f32 as the result, to be reduced further. dtype is F32, BF16 or
// F16; reduce is not AVG. out may be an input of F32.
void reduce_to_f32(const void* const* inputs, size_t n_inputs, float* out, size_t count,
                   nxd_dtype_t dtype, nxd_reduce_t reduce);

// out[i] = in[i] / divisor, rounded once to F32, BF16 or F16: ends what reduce_to_f32 began, with
// the number of ranks as the divisor for AVG and 1 otherwise. out may be in when dtype is F32.
void round_from_f32(const float* in, void* out, size_t count, nxd_dtype_t dtype, float divisor);

}  // namespace nxd::kernels
