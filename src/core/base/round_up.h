#pragma once

#include <type_traits>

namespace nxd {

// The least multiple of unit that is not below value; unit is positive.
template <class Integer>
constexpr Integer round_up(Integer value, std::type_identity_t<Integer> unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace nxd
