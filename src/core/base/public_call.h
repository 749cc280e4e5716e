#pragma once

#include <atomic>

namespace nxd {

// The function of the header that the calling thread is in, for counts of where something comes
// from. A callback that calls the library is in the function that it calls. Null where the thread
// has entered the library by none: libtorch called an operator of ours.
const char* current_public_call() noexcept;

// Sets it for a scope, to a string that stays. Until something wants to know, which is from the
// next call on, it costs a look at a flag: a getter takes no more than a few nanoseconds.
class PublicCall {
 public:
  explicit PublicCall(const char* name) noexcept
      : is_known_(are_known_.load(std::memory_order_relaxed)) {
    if (is_known_) outer_ = enter(name);
  }
  ~PublicCall() {
    if (is_known_) enter(outer_);
  }
  PublicCall(const PublicCall&) = delete;
  PublicCall& operator=(const PublicCall&) = delete;

  static void make_known() noexcept { are_known_.store(true, std::memory_order_relaxed); }

 private:
  // Gives the one before.
  static const char* enter(const char* name) noexcept;

  static std::atomic<bool> are_known_;

  const bool is_known_;
  const char* outer_ = nullptr;
};

}  // namespace nxd
