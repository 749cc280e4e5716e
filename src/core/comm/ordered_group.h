#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/group_call.h"
#include "core/comm/monitor/group_monitor.h"
#include "core/comm/work.h"
#include "core/comm/work_lanes.h"

namespace nxd {

// Puts the calls on another group in order, those that wait and those that do not. Collectives
// happen in the order they were issued in, and so do the messages of one peer, tag and direction;
// apart from that nothing waits for anything, so that ranks may issue messages, and the works of
// different groups, in different orders. A call that waits runs on its caller's thread unless there
// is something before it.
class OrderedGroup : public ProcessGroup {
 public:
  OrderedGroup(std::shared_ptr<GroupMonitor> monitor, std::unique_ptr<ProcessGroup> inner)
      : monitor_(std::move(monitor)), inner_(std::move(inner)) {}
  ~OrderedGroup() override { end_works(); }

  const std::string& name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::vector<int>& ranks() const override { return inner_->ranks(); }
  nxd_transport_t transport() const override { return inner_->transport(); }
  std::shared_ptr<Arena> arena() const override { return inner_->arena(); }
  void* peer_memory(int peer, const ArenaPlace& place) override {
    return inner_->peer_memory(peer, place);
  }

  void all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                  nxd_reduce_t reduce) override;
  void all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) override;
  void reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                      nxd_reduce_t reduce) override;
  void broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) override;
  void all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) override;
  void send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) override;
  void receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) override;
  void barrier() override;

  void abort() noexcept override { inner_->abort(); }
  void set_timeout_ms(int64_t timeout_ms) override { inner_->set_timeout_ms(timeout_ms); }
  void refuse(const char* operation, const std::string& reason) override;
  void refuse_message(Operation operation, int peer, int tag, const std::string& reason) override;

  std::shared_ptr<Work> start(const GroupCall& call, Work::Bound bound = Work::Bound::kFromBegin);
  // Takes a call's place in the order, and does not wait. The work fails, as a refused call does.
  std::shared_ptr<Work> start_refusal(const GroupCall& call, const std::string& reason,
                                      Work::Bound bound = Work::Bound::kFromBegin);

  // Asks the user's callback whether to give up, for a call that takes long without a wait.
  void check_interrupt(const char* operation) const;
  // Waits until all works are done, or the interrupt callback has enough.
  void wait_for_works();
  // Aborts the group when works are pending, and waits until they have ended, which is soon.
  void end_works() noexcept;

  bool is_aborted() const noexcept { return monitor_->aborted(); }
  bool has_works() const noexcept { return lanes_.has_pending(false) || lanes_.has_pending(true); }

  GroupRecord record() const { return monitor_->record(); }  // from any thread

 private:
  template <class Function>
  void carry_out(const char* operation, const Function& function);
  void carry_out(const GroupCall& call);
  void carry_out_refusal(const GroupCall& call, const std::string& reason);
  void run(const GroupCall& call);
  void run_behind(const GroupCall& call);
  void submit_and_wait(const WorkLanes::Lane& lane, const char* operation,
                       std::function<void()> run);

  const std::shared_ptr<GroupMonitor> monitor_;
  const std::unique_ptr<ProcessGroup> inner_;
  WorkLanes lanes_;  // its threads use the above
};

}  // namespace nxd
