#pragma once

#include <cstddef>

namespace nxd {

// On x86-64, and on AArch64 with pages of 4 KiB. The system backs mappings that begin and end at
// its multiples by it.
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace nxd
