#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/base/philox.h"

// Random values of a site for a whole array, on the CPU: the element of row-major index i is the
// site's of index i. dtype is a float; narrower ones than F32 are rounded from it.
namespace nxd {

// In [low, high), as the dtype rounds these: where rounding would give high, the value below it.
// Bounds, or values of a normal distribution, that the dtype does not have are INVALID_ARGUMENT.
at::Tensor uniform_values(const RandomSite& site, std::vector<int64_t> sizes, at::ScalarType dtype,
                          double low, double high);
at::Tensor normal_values(const RandomSite& site, std::vector<int64_t> sizes, at::ScalarType dtype,
                         double mean, double deviation);
// 1 with the probability, else 0: what dropout_factors keeps with that probability.
at::Tensor bernoulli_values(const RandomSite& site, std::vector<int64_t> sizes,
                            at::ScalarType dtype, double probability);

}  // namespace nxd
