#pragma once

namespace nxd {

// See nxd_python_capsule_destroy.
void destroy_python_capsule(void* capsule) noexcept;

}  // namespace nxd
