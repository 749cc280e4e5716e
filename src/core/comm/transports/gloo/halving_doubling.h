#pragma once

#include <cstddef>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/transports/gloo/gloo_link.h"
#include "core/kernels/memory_pool.h"

namespace nxd {

// Reductions among many ranks, by recursive halving and doubling (Rabenseifner, Optimization of
// collective reduction operations, 2004): ceil(log2 n) connections and rounds per rank, and at most
// twice the data.
//
// Every element is added up in the same order, whatever the operation and the size: that of a
// balanced binary tree over consecutive ranks, the lower ranks' sum first. It has 2^k leaves, as
// many as the ranks allow. The first leaves are two ranks each: the lower is the proxy of the extra
// rank, takes its data, and gives it the result in the end.
class HalvingDoubling {
 public:
  explicit HalvingDoubling(GlooLink& link);

  // Only for calls that all ranks agree on, with a count above 0.
  void all_reduce(const Call& call);
  void reduce_scatter(const Call& call);

 private:
  struct Range {
    size_t begin, end;
    size_t count() const { return end - begin; }
  };
  // A round of halving: with a peer that has the sums of the same range of elements over other
  // ranks. Each keeps one half, and adds to it the peer's.
  struct Step {
    int peer;
    bool is_lower;
    Range keep, give;
  };

  bool is_extra() const { return leaf_ < 0; }
  bool is_proxy() const { return !is_extra() && leaf_ < pairs_; }
  int rank_of(int leaf) const { return leaf < pairs_ ? 2 * leaf : leaf + pairs_; }

  void connect();
  void all_reduce_chunk(const Call& call, const char* send, char* recv, size_t count);
  void reduce_scatter_chunk(const Call& call, size_t from, size_t count);

  // The sums of what this leaf's ranks have.
  void start_sums(const Call& call, const char* own, char* sums, size_t count);
  std::vector<Step> halvings(size_t count) const;
  std::vector<Step> scatterings(size_t count);
  void halve(const std::vector<Step>& steps, char* sums, nxd_dtype_t wide, nxd_reduce_t reduce);
  void double_up(const std::vector<Step>& steps, char* data, size_t item);
  void exchange_whole(char* sums, size_t count, nxd_dtype_t wide, nxd_reduce_t reduce);
  void pack(const Call& call, size_t from, size_t count, char* packed);

  void send(int peer, const void* data, size_t bytes);
  void receive(int peer, void* data, size_t bytes);

  GlooLink& link_;
  int leaves_ = 1, pairs_ = 0;
  int leaf_ = -1;  // -1: an extra rank
  bool connected_ = false;
  // For reduce_scatter: the leaves in the order in which halving cuts their blocks off.
  std::vector<int> order_;
  kernels::Workspace sums_, arrived_, packed_;
};

}  // namespace nxd
