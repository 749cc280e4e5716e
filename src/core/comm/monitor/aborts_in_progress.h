#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace nxd {

// The aborts of one rank's groups that threads are inside of. A thread that an abort woke may go on
// to destroy what the other thread still aborts, so destroying waits for them.
class AbortsInProgress {
 public:
  // An abort by this thread.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<AbortsInProgress> aborts) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class AbortsInProgress;
    const std::shared_ptr<AbortsInProgress> aborts_;  // may outlive what is aborted
    const std::thread::id thread_ = std::this_thread::get_id();
    Scope* next_ = nullptr;
  };

  // Waits until no other thread is inside of an abort. A store's callback that destroys waits for
  // none of its own.
  void wait_for_others() noexcept;

 private:
  bool has_others() const noexcept;

  std::mutex mutex_;
  std::condition_variable ended_;
  Scope* first_ = nullptr;  // of a list; each is on the stack of its thread
};

}  // namespace nxd
