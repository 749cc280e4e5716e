#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "core/base/fork_guard.h"
#include "core/comm/monitor/group_monitor.h"

namespace nxd {

// Group calls that a thread of the library's makes in place of another thread, which goes on
// meanwhile: those of a recorded step that is not waited for. Every rank has them in the order of
// its program, so that calls of the other thread's own begin when these have ended. The other
// thread makes this object.
class DeputyCalls {
 public:
  // By the other thread: its calls on groups wait for these from now on.
  static void expect(const std::shared_ptr<DeputyCalls>& calls);
  // Returns when those that this thread's calls wait for have ended, if there are any.
  static void wait_for_own();

  // While it lives, the calls of this thread are these.
  class Scope {
   public:
    explicit Scope(DeputyCalls& calls);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const BlockedCallers::Deputy deputy_;
  };

  // A call on a group, whoever makes it: waits until it is its turn.
  class Turn {
   public:
    Turn(const std::shared_ptr<GroupMonitor>& group, const char* operation);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool is_deputys() const { return calls_ != nullptr; }

   private:
    DeputyCalls* const calls_;
  };

  void end() noexcept;
  // From any thread. Meanwhile a thread of the caller's does what the calls need one for: it serves
  // the store, and asks the interrupt callback, whose status the call in progress then fails with.
  void wait();

 private:
  void help(bool* is_interrupted);

  const ForkGuard fork_guard_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  std::shared_ptr<GroupMonitor> group_;  // of the call in progress
  const char* operation_ = nullptr;
};

}  // namespace nxd
