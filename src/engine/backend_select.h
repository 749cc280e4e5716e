#pragma once

#include <c10/core/DispatchKeySet.h>

// Kernels of ours stand at BackendSelect, which libtorch leaves empty for most operators. Every
// call passes it below autograd and above the CPU's own kernels, and is dispatched again to go on.
namespace nxd {

inline constexpr c10::DispatchKey kSelectKey = c10::DispatchKey::BackendSelect;

// The keys of a call that goes on to the kernels below.
constexpr c10::DispatchKeySet keys_below_select(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kSelectKey);
}

}  // namespace nxd
