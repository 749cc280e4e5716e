#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "core/comm/net/deadline.h"

namespace nxd {

// Tells whether a rank as a whole waits: all threads that make calls on its groups do, and all
// works in progress. A thread that goes on may come to what other ranks wait for.
//
// Threads are known from their first call on, until they end. One that has made no call for long
// counts no more, for it may be idle, or wait for another thread of the program. A thread that is
// not known yet may come too, so a rank whose threads all wait has to do so for a while.
class BlockedCallers {
 public:
  BlockedCallers();

  // A caller waits until works end, however long that takes.
  class Wait {
   public:
    explicit Wait(BlockedCallers& callers);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    const std::shared_ptr<struct CallersOfRank> callers_;
  };

  // While it lives, this thread makes a call for a caller that goes on.
  class Behalf {
   public:
    explicit Behalf(BlockedCallers& callers);
    ~Behalf();
    Behalf(const Behalf&) = delete;
    Behalf& operator=(const Behalf&) = delete;

   private:
    const std::shared_ptr<struct CallersOfRank> callers_;
  };

  // While it lives, calls of this thread are those of another one, which makes none meanwhile.
  class Deputy {
   public:
    explicit Deputy(std::thread::id caller) noexcept;
    ~Deputy();
    Deputy(const Deputy&) = delete;
    Deputy& operator=(const Deputy&) = delete;
  };

  // These do not fail: without memory a rank does not count as waiting.
  // This thread makes a call. To say so costs a few instructions.
  void enter() noexcept;
  // A call of this thread waits for a rank. To be said again as long as it does.
  void begin_wait(const void* call, int awaited) noexcept;
  void end_wait(const void* call) noexcept;

  // The waits of a rank that waits as a whole.
  struct Waits {
    uint64_t number;  // another after each change
    uint64_t rounds;  // in each, all waits were said again
    std::set<int> awaited;
  };
  // How long nothing may change, for a thread that has made no call yet, and for one that has.
  struct Patience {
    int64_t new_ms, idle_ms;
  };
  // None while a caller goes on, or may.
  std::optional<Waits> waits(const Patience& patience) noexcept;

 private:
  const std::shared_ptr<struct CallersOfRank> callers_;
};

}  // namespace nxd
