#pragma once

#include <cstdint>
#include <string>

namespace nxd {

// Heads that heads of zeros follow, up to a number that ranks divide. Pure.
struct HeadPadding {
  int64_t heads = 1, padded_heads = 1;

  // Up to a multiple of degree. INVALID_ARGUMENT for numbers below 1, and a sum that does not fit.
  static HeadPadding make(int64_t heads, int64_t degree);
  int64_t extra() const { return padded_heads - heads; }
  // Features that grow as heads do. INVALID_ARGUMENT, which begins with what they are features of,
  // where that is no whole number.
  int64_t padded(int64_t features, const std::string& what) const;
};

}  // namespace nxd
