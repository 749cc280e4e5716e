#pragma once

// How every function of nxd.h takes its arguments apart.
#include <cstddef>

#include "core/base/error.h"

namespace nxd {

// The pointer of an output, which starts as zero and stays so when the call fails.
template <class T>
T& output(T* out, const char* name) {
  check_argument(out, name, ": expected a pointer, got NULL");
  *out = T{};
  return *out;
}

// An array of results, all zero until the call has succeeded.
template <class T>
void clear_outputs(T* out, size_t count, const char* name) {
  check_argument(out || count == 0, name, ": expected room for ", count, " results, got NULL");
  for (size_t i = 0; i < count; ++i) out[i] = T{};
}

template <class T>
T& required(T* pointer, const char* name) {
  check_argument(pointer, name, ": expected a pointer, got NULL");
  return *pointer;
}

}  // namespace nxd
