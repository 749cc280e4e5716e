#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "core/base/fork_guard.h"

namespace nxd {

// Runs closures one after another beside the thread that hands them over.
class ClosureThread {
 public:
  using Closure = std::function<void()>;

  ClosureThread() = default;
  ClosureThread(const ClosureThread&) = delete;
  ClosureThread& operator=(const ClosureThread&) = delete;
  // Waits for the one that runs, and drops the others.
  ~ClosureThread();

  // OUT_OF_MEMORY when there is no thread to be had.
  void start(const char* what_for);
  void add(Closure closure);
  // Waits until all have run.
  void wait();
  // Why the first failed that has failed since the last call.
  std::optional<Error> take_failure();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Closure> waiting_;
  bool is_running_ = false, stop_ = false;
  std::optional<Error> failure_;
  std::thread thread_;
};

// One that is started when it is needed first. A forked child has its parent's, which does not run
// there.
class LazyClosureThread {
 public:
  explicit LazyClosureThread(const char* what_for) : what_for_(what_for) {}
  LazyClosureThread(const LazyClosureThread&) = delete;
  LazyClosureThread& operator=(const LazyClosureThread&) = delete;
  ~LazyClosureThread() { existing(); }

  // Null before it is started.
  ClosureThread* existing() noexcept;
  ClosureThread& started();

 private:
  const char* const what_for_;
  std::unique_ptr<ClosureThread> thread_;
  ForkGuard guard_;
};

}  // namespace nxd
