#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/transports/gloo/gloo_group.h"
#include "core/comm/transports/shm/shm_group.h"
#include "core/kernels/memory_pool.h"

namespace nxd {

// A group whose ranks are on several hosts: shared memory within each host, Gloo between them.
//
// The i-th members of all hosts form rail i, as far as every host has an i-th member. Data that all
// need are cut into as many parts as there are rails, so that every part crosses the network once,
// each by a connection of its own. What gains nothing from that goes by Gloo between all ranks.
//
// Sums are added in rank order within each host and then, between hosts, as a Gloo group of so many
// ranks adds them.
class HierarchicalGroup : public ProcessGroup {
 public:
  // hosts: the world ranks on each, in group order.
  HierarchicalGroup(std::shared_ptr<GroupMonitor> monitor, const std::string& key,
                    std::vector<std::vector<int>> hosts);

  const std::string& name() const override { return monitor_->name(); }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks().size()); }
  const std::vector<int>& ranks() const override { return monitor_->ranks(); }
  nxd_transport_t transport() const override { return NXD_TRANSPORT_HIERARCHICAL; }
  std::shared_ptr<Arena> arena() const override { return neighbours_->arena(); }

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
  void refuse_message(Operation operation, int peer, int tag, const std::string& reason) override;

 private:
  using Range = ShmGroup::Range;

  // All ranks compare headers; a reason refuses the call.
  void agree(const CallHeader& header, const std::string& reason);
  void agree(const CollectiveCall& call);
  // The part of count elements that each local rank carries over its rail.
  std::vector<Range> parts_of(size_t count, size_t item) const;
  void reduce_piece(const CollectiveCall& call, size_t from, size_t count);
  void scatter_piece(const CollectiveCall& call, size_t from, size_t count);
  // Ends a reduction whose 16-bit floats are still f32, and whose average is still a sum.
  void finish(const void* sums, void* out, size_t count, const CollectiveCall& call) const;
  bool same_on_all_hosts() const { return rails_ == largest_host_; }

  const std::shared_ptr<GroupMonitor> monitor_;
  const std::vector<std::vector<int>> hosts_;
  int rank_ = 0;
  size_t host_ = 0, local_ = 0;  // this rank's host, and its place there
  size_t rails_ = 0, largest_host_ = 0;
  std::vector<std::vector<int>> places_;  // of hosts_ in the group

  std::unique_ptr<ShmGroup> neighbours_;
  std::unique_ptr<GlooGroup> rail_;  // none for a rank beyond the rails
  std::unique_ptr<GlooGroup> flat_;  // all ranks
  kernels::Workspace sums_, results_;
};

}  // namespace nxd
