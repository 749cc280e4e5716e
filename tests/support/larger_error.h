#pragma once

#include <algorithm>
#include <cmath>

// The larger of two errors, where a NaN is the largest: std::max and std::fmax may drop it.
inline double larger_error(double worst, double error) {
  return std::isnan(error) ? INFINITY : std::max(worst, std::fabs(error));
}
