#pragma once

// Everything that differs between the supported releases of libtorch, 1.13 to 2.x.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <string_view>
#include <vector>

// libtorch 1.13 has its device guards' streams noexcept.
#if TORCH_VERSION_MAJOR >= 2
#define NXD_TORCH_1_NOEXCEPT
#else
#define NXD_TORCH_1_NOEXCEPT noexcept
#endif

namespace nxd::compat {

// libtorch 1.13 reports missing kernels of a dtype and a full memory as plain c10::Error, which
// later releases have classes for.
inline bool says_not_implemented(std::string_view message) {
  return message.find("not implemented for '") != std::string_view::npos;
}
inline bool says_out_of_memory(std::string_view message) {
  return message.find("DefaultCPUAllocator: ") != std::string_view::npos &&
         message.find("memory") != std::string_view::npos;
}

// Integers of a schema are SymInt from 2.0 on, where a shape may be symbolic.
inline bool is_int(c10::TypeKind kind) {
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType;
}

// Sizes none of which is symbolic.
inline std::vector<int64_t> sizes_of(c10::SymIntArrayRef sizes) {
  std::vector<int64_t> out;
  for (const auto& size : sizes) out.push_back(size.expect_int());
  return out;
}

}  // namespace nxd::compat
