#pragma once

// How every function of nxd.h takes its arguments apart.
#include <cstddef>
#include <cstring>
#include <string>

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

// Error information that starts as that of no error.
inline nxd_error_info_t& error_info_output(nxd_error_info_t* out) {
  check_argument(out, "out_info: expected a pointer, got NULL");
  if (out->struct_size != sizeof(nxd_error_info_t)) {
    fail(NXD_ERROR_ABI_MISMATCH, "out_info->struct_size: expected ", sizeof(nxd_error_info_t),
         ", got ", out->struct_size);
  }
  *out = {sizeof(nxd_error_info_t), NXD_OK, -1, 0, "", "", -1, NXD_PARAMETERS_NONE, 0};
  return *out;
}

// Text into a caller's buffer, with its terminator, or nothing at all.
inline void copy_text(const std::string& text, char* buf, size_t cap, size_t& needed) {
  needed = text.size() + 1;
  if (cap == 0) return;
  check_argument(buf, "buf: expected a pointer to ", cap, " bytes, got NULL");
  check_argument(needed <= cap, "cap: expected at least ", needed, " bytes, got ", cap);
  std::memcpy(buf, text.c_str(), needed);
}

}  // namespace nxd
