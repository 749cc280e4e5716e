#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace nxd {

// The fewest digits that give a number back when it is read, for a message about numbers that may
// lie side by side: a stream's six digits show 1048576 and 1048578 as one. Counts have no exponent.
inline std::string exact_number(double value) {
  constexpr double kCount = 0x1p53;
  if (std::trunc(value) == value && std::abs(value) < kCount) {
    return std::to_string(static_cast<int64_t>(value));
  }
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

}  // namespace nxd
