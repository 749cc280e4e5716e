#pragma once

namespace nxd {

// Cores that this thread may run on, at least 1.
int usable_cores() noexcept;

}  // namespace nxd
