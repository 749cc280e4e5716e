#include "core/comm/work.h"

#include <algorithm>

#include "core/base/last_error.h"
#include "core/base/log.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

// Threads that wait for a store of the caller's do so for every key, one after the other.
constexpr milliseconds kServingBeat(1), kInterruptBeat(20), kSlowBeat(200);

}  // namespace

Work::Work(std::shared_ptr<const RankShared> shared, std::string group, const char* operation,
           Bound bound)
    : group_(std::move(group)), operation_(operation), bound_(bound), shared_(std::move(shared)) {
  context_.group = group_;
  context_.operation = operation_;
}

std::string Work::what() const { return text(operation_, " on group \"", group_, "\""); }

bool Work::begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kDone) return false;
  state_ = State::kRunning;
  span_.begin_ns = monotonic_ns();
  return true;
}

void Work::finish(std::exception_ptr error) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kDone) set_done(std::move(error));
}

void Work::set_done(std::exception_ptr error) {
  error_ = std::move(error);
  if (error_) {
    try {
      std::rethrow_exception(error_);
    } catch (const Error& e) {
      status_ = e.status();
      context_.root_rank = e.context().root_rank;
      context_.sequence = e.context().sequence;
    } catch (...) {
      status_ = record_current_exception();
    }
  }
  state_ = State::kDone;
  span_.end_ns = monotonic_ns();
  if (span_.begin_ns == 0) span_.begin_ns = span_.end_ns;
  shared_.reset();
  done_.notify_all();
}

Work::Span Work::span() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return span_;
}

bool Work::is_done() const {
  stamp_.check("work");
  flush_log();
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ == State::kDone) return true;
  const auto shared = shared_;
  lock.unlock();
  shared->serve();
  lock.lock();
  return state_ == State::kDone;
}

bool Work::attend(const Deadline* deadline, const std::function<void()>& look_around) {
  struct Presence {
    Attendance& of;
    explicit Presence(Attendance& a) : of(a) { of.begin(); }
    ~Presence() { of.end(); }
  } const presence(attendance_);
  auto next_look = Deadline::Clock::now() + kInterruptBeat;
  std::unique_lock<std::mutex> lock(mutex_);
  while (state_ != State::kDone) {
    const auto shared = shared_;
    milliseconds beat = kSlowBeat;
    if (shared->interrupt.callback) beat = kInterruptBeat;
    if (shared->store && shared->store->needs_serving()) beat = kServingBeat;
    if (deadline) beat = std::min(beat, milliseconds(deadline->remaining_ms()));
    if (done_.wait_for(lock, beat, [this] { return state_ == State::kDone; })) break;
    lock.unlock();
    shared->serve();
    flush_log();
    if (const auto now = Deadline::Clock::now(); look_around && now >= next_look) {
      look_around();
      next_look = now + kInterruptBeat;
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
  const std::exception_ptr error = error_;
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void Work::wait(int64_t timeout_ms) {
  stamp_.check("work");
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const auto ask = [this] {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto shared = shared_;
    lock.unlock();
    if (shared) shared->interrupt.check("nxd_work_wait");
  };
  if (!attend(timeout_ms < 0 ? nullptr : &deadline, ask)) {
    throw Error(NXD_ERROR_TIMEOUT,
                text(what(), ": not done within ", timeout_ms,
                     " ms; the work goes on, and the group is unharmed"),
                {-1, 0, group_, operation_});
  }
  throw_error();
}

void Work::cancel() {
  stamp_.check("work");
  std::lock_guard<std::mutex> lock(mutex_);
  check_state(state_ == State::kQueued, what(), ": the work has ",
              state_ == State::kDone ? "ended" : "begun", " and cannot be cancelled");
  set_done(std::make_exception_ptr(Error(NXD_ERROR_ABORTED, what() + ": cancelled before it began",
                                         {-1, 0, group_, operation_})));
}

void Work::release() noexcept {
  if (stamp_.is_foreign()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::kQueued) {
      // As cancel() does, but for an error that nobody is going to see.
      set_done(nullptr);
      status_ = NXD_ERROR_ABORTED;
      return;
    }
  }
  attend(nullptr, nullptr);
}

void Work::fill_error_info(nxd_error_info_t& out) const {
  stamp_.check("work");
  std::lock_guard<std::mutex> lock(mutex_);
  check_state(state_ == State::kDone, what(), ": the work is not done yet");
  out.status = status_;
  out.root_rank = context_.root_rank;
  out.sequence = context_.sequence;
  out.group = context_.group.c_str();
  out.operation = context_.operation.c_str();
}

}  // namespace nxd
