#pragma once

#include "core/world/context.h"

namespace nxd {

// Fails with UNSUPPORTED for a layout with context- or expert-parallel ranks: their groups are
// there for a caller's own use, but nothing of the library reduces gradients, losses or norms over
// them, so that `what` would compute something else than it says. For a layout that is not
// initialised it does nothing.
void check_trained_axes(const Context& context, const char* what);

}  // namespace nxd
