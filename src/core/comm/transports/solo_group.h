#pragma once

#include "core/comm/collective_call.h"
#include "core/comm/monitor/group_monitor.h"
#include "core/comm/process_group.h"

namespace nxd {

// A group of one rank: nothing to send, but the same checks.
class SoloGroup : public ProcessGroup {
 public:
  explicit SoloGroup(std::shared_ptr<GroupMonitor> monitor) : monitor_(std::move(monitor)) {}

  const std::string& name() const override { return monitor_->name(); }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<int>& ranks() const override { return monitor_->ranks(); }
  nxd_transport_t transport() const override { return NXD_TRANSPORT_SHARED_MEMORY; }

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

  void abort() noexcept override { monitor_->abort(); }
  void set_timeout_ms(int64_t timeout_ms) override { monitor_->set_timeout_ms(timeout_ms); }
  void refuse(const char* operation, const std::string& reason) override;

 private:
  void run(const CollectiveCall& call);
  [[noreturn]] void refuse_call(const std::string& message) const;

  const std::shared_ptr<GroupMonitor> monitor_;
};

}  // namespace nxd
