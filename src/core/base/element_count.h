#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace nxd {

// The number of elements of an array of these sizes, none below 0. Nothing where the sizes other
// than 0 have a product beyond most: strides are such products, also those of an array without
// elements, so the order of its sizes does not matter.
inline std::optional<int64_t> element_count(std::span<const int64_t> shape, int64_t most) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count) || count > most) {
      return std::nullopt;
    }
  }
  return empty ? 0 : count;
}

}  // namespace nxd
