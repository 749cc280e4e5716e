#pragma once

#include "engine/torch_compat.h"

namespace nxd {

// While it lives, nothing is said of kernels which take the place of libtorch's.
class SilentWarnings {
 public:
  SilentWarnings() : guard_(&handler_) {}

 private:
  struct Handler final : c10::WarningHandler {
    void process(NXD_TORCH_WARNING) override {}
  };

  Handler handler_;
  const compat::WarningHandlerGuard guard_;
};

}  // namespace nxd
