#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "core/comm/deputy_calls.h"

namespace nxd {

// A lock that one thread may take and another let go of.
class ExecutionLock {
 public:
  void lock() {
    std::unique_lock<std::mutex> lock(mutex_);
    free_.wait(lock, [this] { return !is_taken_; });
    is_taken_ = true;
  }
  void unlock() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_taken_ = false;
    free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool is_taken_ = false;
};

// A step whose graph runs on another thread than the one that has recorded it.
class StepRun {
 public:
  // For the other thread: the group calls of the graph.
  const std::shared_ptr<DeputyCalls>& calls() const { return calls_; }
  void end(bool succeeded) noexcept {
    has_succeeded_ = succeeded;
    calls_->end();
  }

  void wait() const { calls_->wait(); }
  // Waits.
  bool has_succeeded() const {
    wait();
    return has_succeeded_;
  }

 private:
  const std::shared_ptr<DeputyCalls> calls_ = std::make_shared<DeputyCalls>();
  bool has_succeeded_ = false;  // written before the end of the calls, and read behind it
};

}  // namespace nxd
