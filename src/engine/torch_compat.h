#pragma once

// Everything that differs between the supported releases of libtorch, 1.13 to 2.x.

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The parameters of WarningHandler::process.
#if TORCH_VERSION_MAJOR < 2
#define NXD_TORCH_WARNING const c10::SourceLocation&, const std::string&, bool
#else
#define NXD_TORCH_WARNING const c10::Warning&
#endif

namespace nxd::compat {

#if TORCH_VERSION_MAJOR < 2
using c10::Warning::WarningHandlerGuard;
#else
using c10::WarningUtils::WarningHandlerGuard;
#endif

// Releases of libtorch differ in whether their device guards' streams are noexcept.
inline constexpr bool kStreamsAreNoexcept =
    noexcept(std::declval<const c10::impl::DeviceGuardImplInterface&>().exchangeStream(
        std::declval<c10::Stream>()));

// libtorch 1.13 reports missing kernels of a dtype and a full memory as plain c10::Error, which
// later releases have classes for.
inline bool says_not_implemented(std::string_view message) {
  return message.find("not implemented for '") != std::string_view::npos ||
         (message.find("derivative for ") != std::string_view::npos &&
          message.find(" is not implemented") != std::string_view::npos);
}
inline bool says_out_of_memory(std::string_view message) {
  return message.find("DefaultCPUAllocator: ") != std::string_view::npos &&
         message.find("memory") != std::string_view::npos;
}

// Integers of a schema are SymInt from 2.0 on, where a shape may be symbolic.
inline bool is_int(c10::TypeKind kind) {
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType;
}

// A number of a convolution's arguments, and a list of them.
#if TORCH_VERSION_MAJOR < 2
using Size = int64_t;
#else
using Size = c10::SymInt;
#endif
using Sizes = c10::ArrayRef<Size>;

// Sizes none of which is symbolic.
inline std::vector<int64_t> sizes_of(at::IntArrayRef sizes) { return sizes.vec(); }
inline std::vector<int64_t> sizes_of(c10::SymIntArrayRef sizes) {
  std::vector<int64_t> out;
  for (const auto& size : sizes) out.push_back(size.expect_int());
  return out;
}

}  // namespace nxd::compat
