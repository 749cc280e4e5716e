#pragma once

#include <atomic>

namespace nxd {

// Accounts for a rank's callers that wait for calls which threads of the library make for them. The
// caller of an asynchronous call goes on, and may do what other ranks wait for, until it waits too.
class BlockedCallers {
 public:
  // A caller waits.
  class Wait {
   public:
    explicit Wait(BlockedCallers& callers) noexcept : callers_(callers) { ++callers_.count_; }
    ~Wait() { --callers_.count_; }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    BlockedCallers& callers_;
  };

  // While it lives, this thread makes calls for callers that go on.
  class Behalf {
   public:
    explicit Behalf(const BlockedCallers& callers) noexcept;
    ~Behalf();
    Behalf(const Behalf&) = delete;
    Behalf& operator=(const Behalf&) = delete;
  };

  // False while this thread makes a call for a caller that goes on.
  static bool is_blocked() noexcept;

 private:
  std::atomic<int> count_{0};
};

}  // namespace nxd
