#pragma once

// Checks and conversions of arguments for every function of nxd.h.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "capi/output_struct.h"
#include "core/base/buffer_limit.h"
#include "core/base/error.h"

namespace nxd {

// The pointer of an output, which starts as zero and stays so when the call fails.
template <class T>
T& output(T* out, const char* name) {
  check_argument(out, name, ": expected a pointer, got NULL");
  *out = T{};
  return *out;
}

// One of several outputs of a call, which all start as zero whichever of them is missing: each is
// cleared before any is asked for.
template <class... T>
void clear_each(T*... outputs) {
  (static_cast<void>(outputs ? * outputs = T{} : T{}), ...);
}

// Checks that an array of so many of a caller's values can be.
template <class T>
void check_array(const T* array, size_t count, const char* name) {
  check_argument(array || count == 0, name, ": expected an array of ", count, ", got NULL");
  check_count(count, sizeof(T), name);
}

// An array of results, all zero until the call has succeeded.
template <class T>
void clear_outputs(T* out, size_t count, const char* name) {
  check_count(count, sizeof(T), name);
  check_argument(out || count == 0, name, ": expected room for ", count, " results, got NULL");
  for (size_t i = 0; i < count; ++i) out[i] = T{};
}

template <class T>
T& required(T* pointer, const char* name) {
  check_argument(pointer, name, ": expected a pointer, got NULL");
  return *pointer;
}

// Error information of no error.
inline nxd_error_info_t no_error_info() {
  return {sizeof(nxd_error_info_t), NXD_OK, -1, 0, "", "", -1, NXD_PARAMETER_STATE_NONE, 0};
}

// Gives what `fill` has to say of an error, to a caller of any version.
template <class Fill>
void output_error_info(nxd_error_info_t* out_info, const Fill& fill) {
  nxd_error_info_t info = no_error_info();
  OutputStruct out(out_info, "out_info", info);
  fill(info);
  out.write(info);
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
