#pragma once

#include <cstdint>

#include "core/optim/gradient_finish.h"
#include "core/optim/parameter_source.h"

namespace nxd {

// Norms are joined from parts: sums of squares for type 2, sums for type 1, and the largest value
// for infinity, among which not-a-number is the largest.
double part_of_norm(nxd_dtype_t dtype, int64_t count, const void* gradient, double type);
double joined_norm(double total, double part, double type);
// The parts of all ranks; over_data: data-parallel ranks have parts of one copy of the model. The
// sum has the same bits on all. Collective over the groups.
double norm_over_ranks(const OptimizerGroups& groups, bool over_data, double own, double type);

// The number that gradients are to be multiplied by.
struct GradientFactor {
  double norm = 0;     // of the scaled gradients, before clipping
  double factor = 1;   // the scale, and the clip where the norm exceeds it
  bool finite = true;  // and within F32, as is the factor, once they are multiplied
};
// It follows from the joined parts of all ranks.
GradientFactor factor_of(double joined, const FinishOptions& options);

}  // namespace nxd
