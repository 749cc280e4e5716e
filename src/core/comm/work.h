#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/fork_guard.h"
#include "core/comm/monitor/rank_shared.h"
#include "core/comm/monitor/wait_clock.h"
#include "core/comm/net/socket.h"

namespace nxd {

// A call on a group that goes on while its caller does other things. It is queued, then it runs,
// then it is done, well or not. The group's threads begin and finish it; everything else is for the
// caller's threads.
class Work {
 public:
  // By when a call must have ended: the group's timeout after it began, or, for one that is started
  // long ahead, after a thread has begun to wait for it.
  enum class Bound { kFromBegin, kFromWait };
  Work(std::shared_ptr<const RankShared> shared, std::string group, const char* operation,
       Bound bound = Bound::kFromBegin);

  // False when it was cancelled, and is done.
  bool begin();
  void finish(std::optional<Error> error) noexcept;

  // For the thread that carries it out; null when no waiting counts.
  const WaitClock* wait_clock() const {
    return bound_ == Bound::kFromWait ? &wait_clock_ : nullptr;
  }

  bool is_done() const;
  // Helps the group's threads meanwhile, as far as they need a thread of the caller's. Fails as the
  // work did; TIMEOUT, or the interrupt callback's status, leaves the work as it is.
  void wait(int64_t timeout_ms);  // negative: until it is done
  // Called once when the work is done: by the thread that ends it, or at once if it has ended. No
  // lock is held then. INVALID_STATE for a second one.
  using Callback = std::function<void(nxd_status_t status)>;
  void set_callback(Callback callback);
  // Readable once the work is done. The work owns it.
  int descriptor();
  // INVALID_STATE once it has begun.
  void cancel();
  // Cancels it, or waits until it is done. Afterwards its buffers are the caller's again. A
  // callback that has not begun is forgotten; one that runs on another thread is waited for.
  void release() noexcept;
  // Strings live as long as the work. INVALID_STATE before it is done.
  void fill_error_info(nxd_error_info_t& out) const;

  // From begin() to finish(), by the monotonic clock. For works that are done.
  struct Span {
    int64_t begin_ns = 0, end_ns = 0;
  };
  Span span() const;

  // Waits until finish() was called; polls every few tens of milliseconds.
  bool wait_until_done(const Deadline* deadline, const std::function<void()>& poll);
  void throw_error() const;

 private:
  enum class State { kQueued, kRunning, kDone };

  void set_done(std::optional<Error> error) noexcept;
  void call_back(std::unique_lock<std::mutex>& lock) noexcept;
  std::string what() const;

  const ForkGuard fork_guard_;
  const std::string group_;
  const char* const operation_;
  const Bound bound_;
  WaitClock wait_clock_;
  mutable std::mutex mutex_;
  std::condition_variable done_;
  State state_ = State::kQueued;
  Span span_;
  std::shared_ptr<const RankShared> shared_;  // until it is done
  std::optional<Error> error_;
  Callback callback_;
  bool had_callback_ = false;
  std::thread::id called_on_;  // while the callback runs
  Fd descriptor_;
};

}  // namespace nxd
