#include "core/comm/deputy_calls.h"

#include <utility>

#include "core/base/callback_thread.h"
#include "core/base/log.h"
#include "core/base/thread_own.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

// Threads that wait for a store of the caller's do so for every key, one after the other.
constexpr milliseconds kServingPause(1), kInterruptPause(20);

thread_local DeputyCalls* made_here = nullptr;  // the calls of this thread are these

struct ExpectedCalls {
  std::shared_ptr<DeputyCalls> calls;
};

}  // namespace

void DeputyCalls::expect(const std::shared_ptr<DeputyCalls>& calls) {
  ThreadOwn<ExpectedCalls>::get().calls = calls;
}

void DeputyCalls::wait_for_own() {
  ExpectedCalls* const expected = ThreadOwn<ExpectedCalls>::find();
  if (!expected || !expected->calls) return;
  expected->calls->wait();
  expected->calls = nullptr;
}

DeputyCalls::Scope::Scope(DeputyCalls& calls) : deputy_(calls.caller_) { made_here = &calls; }

DeputyCalls::Scope::~Scope() { made_here = nullptr; }

DeputyCalls::Turn::Turn(const std::shared_ptr<GroupMonitor>& group, const char* operation)
    : calls_(made_here) {
  if (!calls_) {
    wait_for_own();
    return;
  }
  const std::lock_guard<std::mutex> lock(calls_->mutex_);
  calls_->group_ = group;
  calls_->operation_ = operation;
}

DeputyCalls::Turn::~Turn() {
  if (!calls_) return;
  std::shared_ptr<GroupMonitor> group;  // goes without the lock
  const std::lock_guard<std::mutex> lock(calls_->mutex_);
  group.swap(calls_->group_);
}

void DeputyCalls::end() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void DeputyCalls::help(bool* is_interrupted) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::shared_ptr<GroupMonitor> group = group_;
  const char* const operation = operation_;
  lock.unlock();
  flush_log();
  if (!group) return;
  group->shared().serve();
  if (*is_interrupted) return;
  const auto interruption = group->shared().interrupt.poll();
  if (!interruption) return;
  *is_interrupted = true;
  try {
    group->interrupted(operation, *interruption);
  } catch (const Error&) {
    // The call in progress ends with it.
  }
}

void DeputyCalls::wait() {
  if (fork_guard_.is_foreign()) {
    fail(NXD_ERROR_INVALID_STATE,
         "device xla: a step that was not waited for was running when this process was forked");
  }
  bool is_interrupted = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!has_ended_) {
    const bool serves = group_ && group_->shared().store && group_->shared().store->needs_serving();
    const milliseconds pause = serves ? kServingPause : kInterruptPause;
    if (changed_.wait_for(lock, pause, [this] { return has_ended_; })) break;
    lock.unlock();
    help(&is_interrupted);
    lock.lock();
  }
  lock.unlock();
  flush_log();
}

}  // namespace nxd
