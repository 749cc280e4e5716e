#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace nxd {

// Says nothing of kernels that take the place of libtorch's.
struct SilentWarnings final : c10::WarningHandler {
  void process(const c10::SourceLocation&, const std::string&, const bool) override {}
};

}  // namespace nxd
