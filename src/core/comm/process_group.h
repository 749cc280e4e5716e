#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/transport.h"
#include "core/comm/work.h"
#include "core/comm/work_queues.h"

namespace nxd {

// An ordered set of ranks that communicate over buffers the caller owns. It puts their calls in
// order, those that wait and those that do not, and hands each to its transport.
//
// Collectives happen in the order they were issued in, and so do the messages of one peer, tag and
// direction. Apart from that no call waits for another: ranks may issue messages, and the works of
// different groups, in different orders. A call that waits runs on its caller's thread
// unless there is something before it.
class ProcessGroup final : public std::enable_shared_from_this<ProcessGroup> {
 public:
  ProcessGroup(std::shared_ptr<GroupMonitor> monitor, std::unique_ptr<Transport> transport,
               bool is_in_one_process);
  ~ProcessGroup() { end_works(); }
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return monitor_->name(); }
  int rank() const { return rank_; }  // this rank's place in the group
  int size() const { return static_cast<int>(ranks().size()); }
  const std::vector<int>& ranks() const {
    return monitor_->ranks();
  }  // world ranks, in group order

  // True if all ranks are threads of one process.
  bool is_in_one_process() const { return is_in_one_process_; }

  nxd_transport_t transport() const { return transport_->kind(); }
  std::shared_ptr<Arena> arena() const { return transport_->arena(); }
  void* peer_memory(int peer, const ArenaPlace& place) {
    return transport_->peer_memory(peer, place);
  }

  // The next call that is run or started here has this key: ranks whose keys differ reject it. 0:
  // none.
  void set_next_key(uint64_t key) { next_key_.store(key, std::memory_order_relaxed); }
  void run(const Call& call);
  // Takes the call's place in the order, and does not wait.
  std::shared_ptr<Work> start(const Call& call, Work::Bound bound = Work::Bound::kFromBegin);
  // Takes the call's place on a rank that finds its own arguments bad: always fails.
  void reject(const Call& call, const std::string& why) { run(call.rejected_for(why)); }

  void abort() noexcept { monitor_->abort(); }  // from any thread
  void set_timeout_ms(int64_t timeout_ms) { monitor_->set_timeout_ms(timeout_ms); }
  // Asks the user's callback whether to give up, for a call that takes long without a wait.
  void check_interrupt(const char* operation) const;
  // Waits until all works are done, or the interrupt callback has enough.
  void wait_for_works();
  // Aborts the group when works are pending, and waits until they have ended, which is soon.
  void end_works() noexcept;
  // The same, and waits until no other thread is inside of an abort of this rank's groups: what the
  // caller destroys may be what that one aborts. False in the interrupt callback of a call of the
  // group, which has to stay.
  bool leave() noexcept;

  bool is_aborted() const noexcept { return monitor_->aborted(); }
  bool has_works() const noexcept {
    return queues_.has_pending(false) || queues_.has_pending(true);
  }

  GroupRecord record() const { return monitor_->record(); }  // from any thread

 private:
  Call with_next_key(const Call& call);
  void carry_out(const Call& call);
  void carry_out_for_caller(const Call& call);
  void run_behind(const Call& call);

  const std::shared_ptr<GroupMonitor> monitor_;
  const std::unique_ptr<Transport> transport_;
  const bool is_in_one_process_;
  int rank_ = 0;
  std::atomic<uint64_t> next_key_{0};
  WorkQueues queues_;  // its threads use the above
};

}  // namespace nxd
