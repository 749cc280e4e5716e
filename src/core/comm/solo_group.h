#pragma once

#include "core/comm/collective_call.h"
#include "core/comm/process_group.h"

namespace nxd {

struct LinkShared;

// A group of one rank: nothing to send, but the same checks.
class SoloGroup : public ProcessGroup {
 public:
  SoloGroup(std::shared_ptr<const LinkShared> shared, std::string name, int world_rank);

  const std::string& name() const override { return name_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<int>& ranks() const override { return ranks_; }

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

  void abort() noexcept override { aborted_ = true; }
  void set_timeout_ms(int64_t) override {}
  void refuse(const char* operation, const std::string& reason) override;

 private:
  void run(const CollectiveCall& call);
  void check_usable(const char* operation) const;
  [[noreturn]] void fail_call(nxd_status_t status, const char* operation,
                              const std::string& message) const;

  const std::shared_ptr<const LinkShared> shared_;
  const std::string name_;
  const std::vector<int> ranks_;
  uint64_t sequence_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace nxd
