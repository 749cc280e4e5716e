#pragma once

#include "core/world/context.h"

namespace nxd {

// Asks the context's interrupt callback whether to give up, and fails with its status: for calls
// that take long without waiting for anybody.
void check_interrupt(const Context& context, const char* operation);

}  // namespace nxd
