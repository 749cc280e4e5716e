#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/base/huge_page.h"
#include "core/base/round_up.h"

// How the memory pool rounds the sizes of its blocks. Pure.
namespace nxd::kernels {

constexpr size_t kPoolHeader = 64;                  // before each block
constexpr size_t kSlabBytes = size_t{32} << 20;     // in which blocks lie beside each other
constexpr size_t kLargestInSlab = size_t{4} << 20;  // a larger one has its own huge pages
constexpr size_t kPoolClasses = 8 * 64;

// Eight classes per power of two, so at most an eighth is lost; the smallest has 64 bytes.
inline size_t pool_class(size_t bytes) {
  const size_t units = std::max<size_t>(bytes, 64) - 1;
  const auto shift = static_cast<size_t>(std::bit_width(units)) - 4;
  return shift * 8 + (units >> shift) - 8 + 1;
}

inline size_t pool_class_bytes(size_t size_class) {
  const size_t index = size_class - 1;
  return round_up((index % 8 + 8 + 1) << (index / 8), 64);
}

// Memory of the system that a block of so many bytes takes once it has been written to.
inline size_t pool_footprint(size_t bytes) {
  const size_t in_class = pool_class_bytes(pool_class(bytes));
  if (in_class <= kLargestInSlab) return in_class + kPoolHeader;
  return round_up(bytes + kPoolHeader, kHugePage);
}

}  // namespace nxd::kernels
