#pragma once

#include "core/world/context.h"

namespace nxd {

// Fails with UNSUPPORTED for a layout with context- or expert-parallel ranks. Their groups are
// there for a caller's own use. The library reduces no gradients, losses or norms over them, so
// `what` would compute something else than it says. For a layout that is not initialised it does
// nothing.
void check_trained_axes(const Context& context, const char* what);
void check_trained_axes(const ParallelState& parallel, const char* what);

}  // namespace nxd
