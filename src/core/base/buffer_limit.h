#pragma once

#include <cstddef>

#include "core/base/error.h"

namespace nxd {

// More bytes than the address space of any process has: page tables of five levels give a process
// 2^56. A count beyond it is a slip, such as -1 as a size_t.
constexpr size_t kBufferLimit = size_t{1} << 57U;

// A number of dimensions beyond it is a slip.
constexpr int kMostDims = 64;

// Checks that an array of so many elements can be.
inline void check_count(size_t count, size_t element_size, const char* array) {
  check_argument(count <= kBufferLimit / element_size, array, ": expected an array that fits in ",
                 "memory, got one of ", count, " elements of ", element_size, " bytes");
}

}  // namespace nxd
