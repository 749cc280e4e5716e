#pragma once

// How every function of nxd.h takes its arguments apart.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/base/output_struct.h"

namespace nxd {

// The pointer of an output, which starts as zero and stays so when the call fails.
template <class T>
T& output(T* out, const char* name) {
  check_argument(out, name, ": expected a pointer, got NULL");
  *out = T{};
  return *out;
}

// Several outputs: those that there are start as zero, also when one is missing.
template <class... T>
void clear_all(T*... outs) {
  ((outs ? static_cast<void>(*outs = T{}) : static_cast<void>(0)), ...);
}

// A count of elements that are to be read: a buffer can have so many.
inline void check_count(size_t count, size_t element_size, const char* name) {
  check_argument(count <= static_cast<size_t>(PTRDIFF_MAX) / element_size, name, ": ", count,
                 " elements of ", element_size, " bytes do not fit in memory");
}

// An array of results, all zero until the call has succeeded.
template <class T>
void clear_outputs(T* out, size_t count, const char* name) {
  check_argument(out || count == 0, name, ": expected room for ", count, " results, got NULL");
  check_count(count, sizeof *out, name);
  for (size_t i = 0; i < count; ++i) out[i] = T{};
}

template <class T>
T& required(T* pointer, const char* name) {
  check_argument(pointer, name, ": expected a pointer, got NULL");
  return *pointer;
}

// Error information of no error.
inline nxd_error_info_t no_error_info() {
  return {sizeof(nxd_error_info_t), NXD_OK, -1, 0, "", "", -1, NXD_PARAMETERS_NONE, 0};
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
