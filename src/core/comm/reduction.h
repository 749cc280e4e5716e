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

const char* reduce_name(nxd_reduce_t reduce) noexcept;

}  // namespace nxd
