#pragma once

#include <cstddef>
#include <cstring>

#include "capi/struct_size.h"
#include "core/base/error.h"

namespace nxd {

// Reads an options struct from a caller that may have an older or a newer header. Every options
// struct starts with struct_size and only ever grows at its end. Fields that an older caller does
// not have keep their defaults. A newer caller may not use fields that this library does not know,
// at the struct's end or in place of one that is reserved.
template <class Options>
Options read_options(const Options* given, const Options& defaults, const char* name) {
  if (!given) return defaults;
  const size_t size = given->struct_size;
  if (size < kFirstSize<Options> || size > kLargestStruct) {
    fail(NXD_ERROR_ABI_MISMATCH, name, ".struct_size: expected ", kFirstSize<Options>, " to ",
         kLargestStruct, ", got ", size,
         " (initialise the struct with its INIT macro or init function)");
  }
  if (size > sizeof(Options)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof(Options); i < size; ++i) {
      if (bytes[i] != 0) {
        fail(NXD_ERROR_ABI_MISMATCH, name, ": byte ", i,
             " is set, but this library knows only the first ", sizeof(Options), " bytes");
      }
    }
  }
  Options out = defaults;
  std::memcpy(static_cast<void*>(&out), given, size < sizeof(Options) ? size : sizeof(Options));
  out.struct_size = sizeof(Options);
  if constexpr (requires { out.reserved; })
    check_argument(out.reserved == 0, name, ".reserved: expected 0, got ", out.reserved);
  return out;
}

// The nxd_*_options_init functions: defaults, cut to the size of the caller's header.
template <class Options>
void init_options(Options* out, size_t size, const Options& defaults, const char* name) {
  check_argument(out, name, ": expected a pointer, got NULL");
  if (size < kFirstSize<Options> || size > kLargestStruct) {
    fail(NXD_ERROR_ABI_MISMATCH, name, ": expected a size of ", kFirstSize<Options>, " to ",
         kLargestStruct, ", got ", size);
  }
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, size < sizeof(Options) ? size : sizeof(Options));
  out->struct_size = size;
}

}  // namespace nxd
