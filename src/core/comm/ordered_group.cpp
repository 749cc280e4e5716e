#include "core/comm/ordered_group.h"

namespace nxd {
namespace {

WorkLanes::Lane lane_of(Operation operation, int peer, int tag) {
  if (!is_message(operation)) return {};
  return {true, operation == Operation::kSend, peer, tag};
}

WorkLanes::Lane lane_of(const GroupCall& call) {
  return lane_of(call.operation, call.peer, call.tag);
}

// What all ranks of a call get alike, and what comes before a call has begun.
bool is_agreed(nxd_status_t status) {
  return status == NXD_ERROR_INVALID_ARGUMENT || status == NXD_ERROR_INVALID_STATE;
}

}  // namespace

// A failure that the ranks have not agreed on, such as a lack of memory, leaves them at different
// places.
template <class Function>
void OrderedGroup::carry_out(const char* operation, const Function& function) {
  try {
    function();
  } catch (const Error& e) {
    if (is_agreed(e.status())) throw;
    monitor_->break_off(operation);
  } catch (...) {
    monitor_->break_off(operation);
  }
}

void OrderedGroup::carry_out(const GroupCall& call) {
  carry_out(call.name(), [&] { call.run(*inner_); });
}

void OrderedGroup::carry_out_refusal(const GroupCall& call, const std::string& reason) {
  carry_out(call.name(), [&] { call.refuse(*inner_, reason); });
}

void OrderedGroup::run(const GroupCall& call) {
  if (lanes_.has_pending(is_message(call.operation))) {
    run_behind(call);
  } else {
    carry_out(call);
  }
}

void OrderedGroup::run_behind(const GroupCall& call) {
  monitor_->check_not_forked(call.name());
  const WorkLanes::Lane lane = lane_of(call);
  if (lanes_.has_pending(lane)) {
    submit_and_wait(lane, call.name(), [this, call] { carry_out(call); });
  } else {
    carry_out(call);
  }
}

void OrderedGroup::submit_and_wait(const WorkLanes::Lane& lane, const char* operation,
                                   std::function<void()> run) {
  const auto work = std::make_shared<Work>(monitor_->share(), name(), operation);
  lanes_.submit(lane, {work, std::move(run), [] {}});
  nxd_status_t interrupt = NXD_OK;
  try {
    work->attend(nullptr, [&] {
      interrupt = monitor_->shared().interrupt.poll();
      if (interrupt != NXD_OK) monitor_->interrupted(operation, interrupt);
    });
  } catch (...) {
    // What ended the wait has ended the group too. The call may hold its buffers until it notices.
    work->attend(nullptr, nullptr);
    throw;
  }
  work->throw_error();
}

std::shared_ptr<Work> OrderedGroup::start(const GroupCall& call, Work::Bound bound) {
  monitor_->check_not_forked(call.name());
  auto work = std::make_shared<Work>(monitor_->share(), name(), call.name(), bound);
  const auto cancelled = [this, call] {
    carry_out_refusal(call, "cancelled by nxd_work_cancel before it began");
  };
  lanes_.submit(lane_of(call), {work, [this, call] { carry_out(call); }, cancelled});
  return work;
}

std::shared_ptr<Work> OrderedGroup::start_refusal(const GroupCall& call, const std::string& reason,
                                                  Work::Bound bound) {
  monitor_->check_not_forked(call.name());
  const auto work = std::make_shared<Work>(monitor_->share(), name(), call.name(), bound);
  const auto refuse = [this, call, reason] { carry_out_refusal(call, reason); };
  lanes_.submit(lane_of(call), {work, refuse, refuse});  // a cancelled one is owed to the peers too
  return work;
}

void OrderedGroup::check_interrupt(const char* operation) const {
  monitor_->shared().interrupt.check(operation);
}

void OrderedGroup::wait_for_works() {
  lanes_.wait_until_idle([this] {
    monitor_->shared().serve();
    monitor_->shared().interrupt.check("waiting for asynchronous work");
  });
}

void OrderedGroup::end_works() noexcept {
  if (!has_works()) return;
  if (monitor_->shared().stamp.is_foreign()) return;
  abort();
  try {
    lanes_.wait_until_idle([this] { monitor_->shared().serve(); });
  } catch (...) {
  }
}

void OrderedGroup::all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                              nxd_reduce_t reduce) {
  run({Operation::kAllReduce, send, recv, count, dtype, reduce});
}

void OrderedGroup::all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  run({Operation::kAllGather, send, recv, count, dtype});
}

void OrderedGroup::reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                                  nxd_reduce_t reduce) {
  run({Operation::kReduceScatter, send, recv, count, dtype, reduce});
}

void OrderedGroup::broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) {
  run({Operation::kBroadcast, nullptr, buffer, count, dtype, NXD_REDUCE_INVALID, root});
}

void OrderedGroup::all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  run({Operation::kAllToAll, send, recv, count, dtype});
}

void OrderedGroup::send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) {
  run({Operation::kSend, buffer, nullptr, count, dtype, NXD_REDUCE_INVALID, to, tag});
}

void OrderedGroup::receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) {
  run({Operation::kReceive, nullptr, buffer, count, dtype, NXD_REDUCE_INVALID, from, tag});
}

void OrderedGroup::barrier() { run({Operation::kBarrier}); }

void OrderedGroup::refuse(const char* operation, const std::string& reason) {
  const auto refuse = [&] { carry_out(operation, [&] { inner_->refuse(operation, reason); }); };
  if (!lanes_.has_pending(false)) return refuse();
  monitor_->check_not_forked(operation);
  submit_and_wait({}, operation, refuse);
}

void OrderedGroup::refuse_message(Operation operation, int peer, int tag,
                                  const std::string& reason) {
  const WorkLanes::Lane lane = lane_of(operation, peer, tag);
  monitor_->check_not_forked(operation_name(operation));
  const auto refuse = [&] {
    carry_out(operation_name(operation),
              [&] { inner_->refuse_message(operation, peer, tag, reason); });
  };
  if (!lanes_.has_pending(lane)) return refuse();
  submit_and_wait(lane, operation_name(operation), refuse);
}

}  // namespace nxd
