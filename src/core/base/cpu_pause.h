#pragma once

namespace nxd {

// Between two looks of a loop that polls: gives the core's other thread its turn.
inline void cpu_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace nxd
