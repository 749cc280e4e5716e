#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace nxd {

// A handler that says nothing of kernels which take the place of libtorch's.
struct SilentWarnings final : c10::WarningHandler {
  void process(const c10::SourceLocation&, const std::string&, const bool) override {}
};

}  // namespace nxd
