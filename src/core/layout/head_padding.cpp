#include "core/layout/head_padding.h"

#include <numeric>

#include "core/base/error.h"

namespace nxd {

HeadPadding HeadPadding::make(int64_t heads, int64_t degree) {
  check_argument(heads >= 1, "num_heads: expected at least 1, got ", heads);
  check_argument(degree >= 1, "tp_degree: expected at least 1, got ", degree);
  HeadPadding padding{heads, heads};
  const int64_t extra = (degree - heads % degree) % degree;
  check_argument(!__builtin_add_overflow(heads, extra, &padding.padded_heads), "num_heads: ", heads,
                 " and ", extra, " more are beyond INT64_MAX");
  return padding;
}

int64_t HeadPadding::padded(int64_t features, const std::string& what) const {
  const int64_t common = std::gcd(heads, padded_heads);
  const int64_t share = heads / common;  // features that grow by a whole number at once
  int64_t grown = 0;
  check_argument(features % share == 0, what, ": expected a multiple of ", share,
                 " features, which grow as ", heads, " heads do to ", padded_heads, ", got ",
                 features);
  check_argument(!__builtin_mul_overflow(features / share, padded_heads / common, &grown), what,
                 ": ", features, " features are too many to grow as ", heads, " heads do to ",
                 padded_heads);
  return grown;
}

}  // namespace nxd
