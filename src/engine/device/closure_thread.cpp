#include "engine/device/closure_thread.h"

#include <utility>

#include "core/base/callback_thread.h"
#include "core/base/start_thread.h"

namespace nxd {

ClosureThread::~ClosureThread() {
  std::deque<Closure> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    dropped.swap(waiting_);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ClosureThread::start(const char* what_for) {
  if (!thread_.joinable()) thread_ = start_thread(what_for, [this] { run(); });
}

void ClosureThread::add(Closure closure) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(closure));
  }
  changed_.notify_all();
}

void ClosureThread::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !is_running_; });
}

std::optional<Error> ClosureThread::take_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(failure_, std::nullopt);
}

void ClosureThread::run() {
  const InternalThread internal;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    Closure closure = std::move(waiting_.front());
    waiting_.pop_front();
    is_running_ = true;
    lock.unlock();
    std::optional<Error> failure;
    try {
      closure();
    } catch (...) {
      failure = Error::current();
    }
    // Its user data are released before it counts as run.
    closure = nullptr;
    lock.lock();
    is_running_ = false;
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
  }
}

ClosureThread* LazyClosureThread::existing() noexcept {
  if (guard_.is_foreign()) {
    static_cast<void>(thread_.release());
    guard_ = {};
  }
  return thread_.get();
}

ClosureThread& LazyClosureThread::started() {
  if (!existing()) thread_ = std::make_unique<ClosureThread>();
  thread_->start(what_for_);
  return *thread_;
}

}  // namespace nxd
