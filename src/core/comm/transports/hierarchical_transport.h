#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/transports/gloo/gloo_transport.h"
#include "core/comm/transports/shm/shm_transport.h"
#include "core/kernels/memory_pool.h"

namespace nxd {

// Among ranks on several hosts: shared memory within each host, Gloo between them.
//
// Sums are added in rank order within each host and then, between hosts, as a Gloo group of so many
// ranks adds them.
class HierarchicalTransport : public Transport {
 public:
  // hosts: the world ranks on each, in group order.
  HierarchicalTransport(std::shared_ptr<GroupMonitor> monitor, const std::string& key,
                        std::vector<std::vector<int>> hosts);

  nxd_transport_t kind() const override { return NXD_TRANSPORT_HIERARCHICAL; }
  void run(const Call& call) override;
  std::shared_ptr<Arena> arena() const override { return neighbours_->arena(); }

 private:
  const std::vector<int>& ranks() const { return monitor_->ranks(); }
  int size() const { return static_cast<int>(ranks().size()); }

  void agree(const Call& call);
  void all_reduce(const Call& call);
  void all_gather(const Call& call);
  void reduce_scatter(const Call& call);
  void broadcast(const Call& call);
  void pass_message(const Call& call);
  // The part of count elements that each local rank carries over its rail.
  std::vector<Share> parts_of(size_t count, size_t item) const;
  void reduce_chunk(const Call& call, size_t from, size_t count);
  void scatter_chunk(const Call& call, size_t from, size_t count);
  // Ends a reduction whose 16-bit floats are still f32, and whose average is still a sum.
  void finish(const void* sums, void* out, size_t count, const Call& call) const;
  bool same_on_all_hosts() const { return rails_ == largest_host_; }

  const std::shared_ptr<GroupMonitor> monitor_;
  const std::vector<std::vector<int>> hosts_;
  int rank_ = 0;
  size_t host_ = 0, local_ = 0;  // this rank's host, and its place there
  size_t rails_ = 0, largest_host_ = 0;
  std::vector<std::vector<int>> places_;  // of hosts_ in the group

  std::unique_ptr<ShmTransport> neighbours_;
  std::unique_ptr<GlooTransport> rail_;  // none for a rank beyond the rails
  std::unique_ptr<GlooTransport> flat_;  // all ranks
  kernels::Workspace sums_, results_;
};

}  // namespace nxd
