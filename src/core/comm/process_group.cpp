#include "core/comm/process_group.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/profiler.h"
#include "core/comm/deputy_calls.h"
#include "core/comm/net/call_in_progress.h"

namespace nxd {
namespace {

WorkQueues::QueueKey queue_of(const Call& call) {
  if (!call.is_message()) return {};
  return {true, call.operation == Operation::kSend, call.peer, call.tag};
}

// Statuses that all ranks of a call get alike, or that come before a call has begun.
bool is_agreed(nxd_status_t status) {
  return status == NXD_ERROR_INVALID_ARGUMENT || status == NXD_ERROR_INVALID_STATE;
}

}  // namespace

ProcessGroup::ProcessGroup(std::shared_ptr<GroupMonitor> monitor,
                           std::unique_ptr<Transport> transport, bool is_in_one_process)
    : monitor_(std::move(monitor)),
      transport_(std::move(transport)),
      is_in_one_process_(is_in_one_process) {
  const auto own = std::find(ranks().begin(), ranks().end(), monitor_->world_rank());
  rank_ = static_cast<int>(own - ranks().begin());
}

// A failure that the ranks have not agreed on, such as a lack of memory, leaves them at different
// places.
void ProcessGroup::carry_out(const Call& call) {
  const PhaseScope phase(NXD_PHASE_COMMUNICATION);
  try {
    transport_->run(call);
  } catch (const Error& e) {
    if (is_agreed(e.status())) throw;
    monitor_->break_off(call.name());
  } catch (...) {
    monitor_->break_off(call.name());
  }
}

void ProcessGroup::carry_out_for_caller(const Call& call) {
  const BlockedCallers::Behalf behalf(monitor_->shared().blocked_callers);
  carry_out(call);
}

// A call has the key as it is issued, however long it then waits.
Call ProcessGroup::with_next_key(const Call& call) {
  Call keyed = call;
  keyed.key = next_key_.exchange(0, std::memory_order_relaxed);
  return keyed;
}

void ProcessGroup::run(const Call& call) {
  const DeputyCalls::Turn turn(monitor_, call.name());
  // A key is for a call of the thread that has set it.
  const bool has_key = !turn.is_deputys() && next_key_.load(std::memory_order_relaxed) != 0;
  if (has_key) return run(with_next_key(call));
  if (queues_.has_pending(call.is_message())) {
    run_behind(call);
  } else {
    carry_out(call);
  }
}

void ProcessGroup::run_behind(const Call& call) {
  monitor_->check_caller(call.name());
  const WorkQueues::QueueKey queue = queue_of(call);
  if (!queues_.has_pending(queue)) return carry_out(call);
  const auto work = std::make_shared<Work>(monitor_->share(), name(), call.name());
  queues_.submit(queue, {work, [this, call] { carry_out_for_caller(call); }, [] {}});
  const CallInProgress waiting(this);  // which the callback cannot destroy the group under
  try {
    work->wait_until_done(nullptr, [&] {
      const auto interruption = monitor_->shared().interrupt.poll();
      if (interruption) monitor_->interrupted(call.name(), *interruption);
    });
  } catch (...) {
    // The end of the wait is the end of the group. The call may hold its buffers until it notices.
    work->wait_until_done(nullptr, nullptr);
    throw;
  }
  work->throw_error();
}

// A call that is cancelled, or rejected from the start, is owed to the peers too. One that fails
// here was not issued, and leaves its key to the next.
std::shared_ptr<Work> ProcessGroup::start(const Call& given, Work::Bound bound) {
  monitor_->check_caller(given.name());
  DeputyCalls::wait_for_own();
  monitor_->shared().blocked_callers.enter();
  Call call = given;
  call.key = next_key_.load(std::memory_order_relaxed);
  auto work = std::make_shared<Work>(monitor_->share(), name(), call.name(), bound);
  const auto cancelled = [this, call] {
    carry_out_for_caller(
        call.rejected.empty() ? call.rejected_for("cancelled or destroyed before it began") : call);
  };
  queues_.submit(queue_of(call), {work, [this, call] { carry_out_for_caller(call); }, cancelled});
  next_key_.store(0, std::memory_order_relaxed);
  return work;
}

void ProcessGroup::check_interrupt(const char* operation) const {
  monitor_->shared().interrupt.check(operation);
}

void ProcessGroup::wait_for_works() {
  const BlockedCallers::Wait wait(monitor_->shared().blocked_callers);
  const RankShared& shared = monitor_->shared();
  queues_.wait_until_idle([&] { shared.serve(); },
                          [&] { shared.interrupt.check("waiting for asynchronous work"); });
}

bool ProcessGroup::leave() noexcept {
  if (CallInProgress::is_set_aside(monitor_.get()) || CallInProgress::is_set_aside(this)) {
    log(NXD_LOG_ERROR, "nxd_group_destroy: group \"", name(),
        "\" is left as it is: the interrupt callback of a call of the group destroys it");
    return false;
  }
  if (monitor_->shared().fork_guard.is_foreign()) return true;
  end_works();
  monitor_->shared().aborts->wait_for_others();
  return true;
}

void ProcessGroup::end_works() noexcept {
  if (!has_works()) return;
  if (monitor_->shared().fork_guard.is_foreign()) return;
  abort();
  try {
    queues_.wait_until_idle([this] { monitor_->shared().serve(); });
  } catch (...) {
  }
}

}  // namespace nxd
