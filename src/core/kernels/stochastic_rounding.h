#pragma once

#include <cstdint>

#include "core/base/philox.h"
#include "core/kernels/bf16.h"

// Stochastic rounding to BF16: up with the probability of the part that is cut off, so that the
// mean of roundings is the value. Finite values beyond the largest BF16 may become infinite, as
// they do to nearest; infinities stay, NaN becomes to_bf16's.
namespace nxd::kernels {

// The random words of a site that elements of a dense [.., cols] piece draw: element (r, c) of
// the piece draws word first + r * row_stride + c. So a piece that says where it lies in a whole
// tensor, by its first element's global index and the whole's row length, rounds as the whole does,
// whatever the layout.
struct RoundingSource {
  RandomSite site;
  uint64_t first = 0;
  int64_t cols = 0;        // 0: the piece is one row
  int64_t row_stride = 0;  // the whole tensor's row length; not read for one row
};

// One value, with a word of RandomSite::word16: the plain form of the kernels.
Bf16 round_stochastic(float value, uint16_t word);

// out[i] = in[i], F32 to BF16, for n elements. out may not overlap in.
void cast_stochastic(const RoundingSource& source, int64_t n, const float* in, void* out);

// INVALID_ARGUMENT for a source that does not describe n elements.
void check_rounding_source(const RoundingSource& source, int64_t n);

}  // namespace nxd::kernels
