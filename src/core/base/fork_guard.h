#pragma once

#include <cstdint>

namespace nxd {

// The process that made an object. A forked child has the memory of its parent's objects, but not
// the threads and locks behind them, so that using one may hang.
class ForkGuard {
 public:
  ForkGuard() noexcept : generation_(current()) {}
  // True if this process is a fork of the one that made the object.
  bool is_foreign() const noexcept { return generation_ != current(); }
  // Fails with INVALID_STATE in a process forked from the one that made the object; name is the
  // argument's.
  void check(const char* name) const {
    if (is_foreign()) fail_foreign(name);
  }

 private:
  static uint32_t current() noexcept;  // forks between the first process and this one
  [[noreturn]] static void fail_foreign(const char* name);

  uint32_t generation_;
};

}  // namespace nxd
