#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/error.h"

namespace nxd {

// Runs closures one after another beside the thread that hands them over. The thread is started
// with the first one.
class ClosureThread {
 public:
  using Closure = std::function<void()>;

  ClosureThread() = default;
  ClosureThread(const ClosureThread&) = delete;
  ClosureThread& operator=(const ClosureThread&) = delete;
  // Waits for the one that runs, and drops the others.
  ~ClosureThread();

  // OUT_OF_MEMORY when there is no thread to be had.
  void start();
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

}  // namespace nxd
