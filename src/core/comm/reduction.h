#pragma once

#include <cstddef>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// out[i] = inputs[0][i] o inputs[1][i] o ..., in this order for every element, so that the bits do
// not depend on how a buffer was cut up. 16-bit floats are accumulated in f32 and rounded once.
// AVG divides the sum by the number of inputs. out may be one of the inputs.
void reduce_in_order(const std::vector<const void*>& inputs, void* out, size_t count,
                     nxd_dtype_t dtype, nxd_reduce_t reduce);

// The same with the result in each of the outputs.
void reduce_to_all(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);

// Reductions in several steps: sums are kept in sum_dtype, so that 16-bit floats are rounded once,
// and reduced by step_of. finish_sums ends a reduction of n inputs; out may be sums where the
// dtypes are the same.
nxd_dtype_t sum_dtype(nxd_dtype_t dtype);
nxd_reduce_t step_of(nxd_reduce_t reduce);
// As reduce_in_order, of 16-bit floats, with sums in f32.
void reduce_in_f32(const std::vector<const void*>& inputs, void* sums, size_t count,
                   nxd_dtype_t dtype, nxd_reduce_t reduce);
void finish_sums(const void* sums, void* out, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce,
                 size_t n);

const char* reduce_name(nxd_reduce_t reduce) noexcept;

}  // namespace nxd
