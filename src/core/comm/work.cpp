#include "core/comm/work.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/log.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

// Threads that wait for a store of the caller's do so for every key, one after the other.
constexpr milliseconds kServingBeat(1), kSlowBeat(200);

}  // namespace

Work::Work(std::shared_ptr<const RankShared> shared, std::string group, const char* operation,
           Bound bound)
    : group_(std::move(group)), operation_(operation), bound_(bound), shared_(std::move(shared)) {}

std::string Work::what() const { return text(operation_, " on group \"", group_, "\""); }

bool Work::begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kDone) return false;
  state_ = State::kRunning;
  span_.begin_ns = monotonic_ns();
  return true;
}

void Work::finish(std::optional<Error> error) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ == State::kDone) return;
  set_done(std::move(error));
  call_back(lock);
}

// With the lock held, which it lets go of for the callback.
void Work::call_back(std::unique_lock<std::mutex>& lock) noexcept {
  if (!callback_) return;
  const Callback callback = std::move(callback_);
  callback_ = nullptr;
  called_on_ = std::this_thread::get_id();
  const nxd_status_t status = error_ ? error_->status() : NXD_OK;
  lock.unlock();
  callback(status);
  lock.lock();
  called_on_ = {};
  done_.notify_all();
}

void Work::set_callback(Callback callback) {
  fork_guard_.check("work");
  std::unique_lock<std::mutex> lock(mutex_);
  check_state(!had_callback_, what(), ": the work has a callback already");
  callback_ = std::move(callback);
  had_callback_ = true;
  if (state_ == State::kDone) call_back(lock);
}

int Work::descriptor() {
  fork_guard_.check("work");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!descriptor_) {
    descriptor_ = Fd(eventfd(state_ == State::kDone ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!descriptor_) fail(NXD_ERROR_IO, what(), ": eventfd: ", std::strerror(errno));
  }
  return descriptor_.get();
}

void Work::set_done(std::optional<Error> error) noexcept {
  error_ = std::move(error);
  state_ = State::kDone;
  span_.end_ns = monotonic_ns();
  if (span_.begin_ns == 0) span_.begin_ns = span_.end_ns;
  shared_.reset();
  if (descriptor_) eventfd_write(descriptor_.get(), 1);
  done_.notify_all();
}

Work::Span Work::span() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return span_;
}

bool Work::is_done() const {
  fork_guard_.check("work");
  flush_log();
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ == State::kDone) return true;
  const auto shared = shared_;
  lock.unlock();
  shared->serve();
  lock.lock();
  return state_ == State::kDone;
}

bool Work::wait_until_done(const Deadline* deadline, const std::function<void()>& poll) {
  struct Waiting {
    WaitClock& clock;
    explicit Waiting(WaitClock& c) : clock(c) { clock.begin(); }
    ~Waiting() { clock.end(); }
  } const waiting(wait_clock_);
  auto next_poll = Deadline::Clock::now() + Interrupt::kBeat;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto shared = shared_;  // null once it is done
  std::optional<BlockedCallers::Wait> blocked;
  // With a deadline the caller may yet go on, to what other ranks wait for.
  if (shared && !deadline) blocked.emplace(shared->blocked_callers);
  while (state_ != State::kDone) {
    milliseconds beat = kSlowBeat;
    if (shared->interrupt.callback) beat = Interrupt::kBeat;
    if (shared->store && shared->store->needs_serving()) beat = kServingBeat;
    if (deadline) beat = std::min(beat, milliseconds(deadline->remaining_ms()));
    if (done_.wait_for(lock, beat, [this] { return state_ == State::kDone; })) break;
    lock.unlock();
    shared->serve();
    flush_log();
    if (const auto now = Deadline::Clock::now(); poll && now >= next_poll) {
      poll();
      next_poll = now + Interrupt::kBeat;
    }
    lock.lock();
    if (state_ != State::kDone && deadline && deadline->expired()) return false;
  }
  lock.unlock();
  flush_log();
  return true;
}

void Work::throw_error() const {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::optional<Error> error = error_;
  lock.unlock();
  if (error) throw Error(*error);
}

void Work::wait(int64_t timeout_ms) {
  fork_guard_.check("work");
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const auto ask = [this] {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto shared = shared_;
    lock.unlock();
    if (shared) shared->interrupt.check("nxd_work_wait");
  };
  if (!wait_until_done(timeout_ms < 0 ? nullptr : &deadline, ask)) {
    throw Error(NXD_ERROR_TIMEOUT,
                text(what(), ": not done within ", timeout_ms,
                     " ms; the work goes on, and the group is unharmed"),
                {-1, 0, group_, operation_});
  }
  throw_error();
}

void Work::cancel() {
  fork_guard_.check("work");
  std::unique_lock<std::mutex> lock(mutex_);
  check_state(state_ == State::kQueued, what(), ": the work has ",
              state_ == State::kDone ? "ended" : "begun", " and cannot be cancelled");
  set_done(Error(NXD_ERROR_ABORTED, what() + ": cancelled before it began",
                 {-1, 0, group_, operation_}));
  call_back(lock);
}

void Work::release() noexcept {
  if (fork_guard_.is_foreign()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    callback_ = nullptr;
    if (state_ == State::kQueued) {
      // As cancel() does, with a short message, since no code will see it.
      set_done(Error::plain(NXD_ERROR_ABORTED, "destroyed before it began"));
      return;
    }
  }
  wait_until_done(nullptr, nullptr);
  std::unique_lock<std::mutex> lock(mutex_);
  if (called_on_ == std::this_thread::get_id()) return;
  done_.wait(lock, [this] { return called_on_ == std::thread::id(); });
}

void Work::fill_error_info(nxd_error_info_t& out) const {
  fork_guard_.check("work");
  std::lock_guard<std::mutex> lock(mutex_);
  check_state(state_ == State::kDone, what(), ": the work is not done yet");
  out.status = error_ ? error_->status() : NXD_OK;
  out.root_rank = error_ ? error_->context().root_rank : -1;
  out.sequence = error_ ? error_->context().sequence : 0;
  out.group = group_.c_str();
  out.operation = operation_;
}

}  // namespace nxd
