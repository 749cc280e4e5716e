#pragma once

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace nxd {

// The floating-point environment of a thread: rounding, traps, and whether subnormal numbers are
// flushed. Programs change it, some without a word of theirs: Lisp systems trap, objects that were
// linked with -ffast-math flush. Sums would then differ between ranks, or between the threads of
// one, and a NaN that a call was to reject would end the process.

// The default environment while it lives. The caller's, with its flags, is there again afterwards.
// Threads that are made meanwhile inherit the default. It is cheap where nothing is to be changed.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() noexcept {
    if (!is_here()) enter();
  }
  ~DefaultFloatEnvironment() {
    if (is_entered_) leave();
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

  static bool is_here() noexcept {
#if defined(__x86_64__)
    // Without the flags of what has happened. The functions of fenv.h set x87's control word
    // together with it.
    return (_mm_getcsr() & ~0x3fU) == 0x1f80U;
#elif defined(__aarch64__)
    return __builtin_aarch64_get_fpcr() == 0;
#else
    return false;
#endif
  }

 private:
  friend class CallersFloatEnvironment;
  void enter() noexcept;
  void leave() const noexcept;

  bool is_entered_ = false;
  std::fenv_t callers_;
  const DefaultFloatEnvironment* outer_ = nullptr;
};

// The environment of the innermost call's caller while it lives: for callbacks, which run on the
// caller's thread.
class CallersFloatEnvironment {
 public:
  CallersFloatEnvironment() noexcept;
  ~CallersFloatEnvironment();
  CallersFloatEnvironment(const CallersFloatEnvironment&) = delete;
  CallersFloatEnvironment& operator=(const CallersFloatEnvironment&) = delete;

 private:
  const DefaultFloatEnvironment* const call_;
};

}  // namespace nxd
