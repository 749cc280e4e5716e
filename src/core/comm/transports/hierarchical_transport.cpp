// Collectives among ranks on several hosts: shared memory within a host, Gloo between hosts.
//
// The i-th members of all hosts form rail i, as far as every host has an i-th member. An all-reduce
// first adds within each host, so that the i-th member has the sums of part i. Rail i adds these
// over the hosts, and each host shares the results. So each part crosses the network once, and the
// rails work at the same time; up to 32 KiB take one rail. A broadcast cuts its data into the same
// parts. An all-gather and a reduce-scatter send over rail i what is of, or for, the i-th members,
// if all hosts have as many ranks. An all-to-all, and a message to another host, go over Gloo from
// each rank to each.
//
// Example: ranks 0 and 1 on one host, rank 2 on another, so that there is one rail: ranks 0 and 2.
//   agreement    0 and 1 compare; 0 and 2 compare what their hosts found; 0 tells 1 in a third one
//   all_reduce   0 adds what 0 and 1 have; 0 and 2 all-reduce these sums over Gloo; 0 shares the
//                result with 1 through shared memory
//   broadcast    from 1: 0 and 1 share the data; 0, as the rail's member, sends them to 2
// With a rank 3 beside rank 2 there are two rails, 0 and 2, 1 and 3, each with half of the data.
#include "core/comm/transports/hierarchical_transport.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "core/base/dtype.h"
#include "core/comm/reduction.h"

namespace nxd {
namespace {

// Bytes that each rail carries at a time.
constexpr size_t kRailChunk = size_t{4} << 20;
// Up to here one rail alone does as well.
constexpr size_t kOneRail = size_t{32} << 10;

}  // namespace

HierarchicalTransport::HierarchicalTransport(std::shared_ptr<GroupMonitor> monitor,
                                             const std::string& key,
                                             std::vector<std::vector<int>> hosts)
    : monitor_(std::move(monitor)), hosts_(std::move(hosts)) {
  std::unordered_map<int, int> place_of;
  for (const int rank : ranks()) place_of.emplace(rank, static_cast<int>(place_of.size()));
  rank_ = place_of.at(monitor_->world_rank());
  rails_ = hosts_[0].size();
  for (size_t host = 0; host < hosts_.size(); ++host) {
    const std::vector<int>& members = hosts_[host];
    rails_ = std::min(rails_, members.size());
    largest_host_ = std::max(largest_host_, members.size());
    std::vector<int>& places = places_.emplace_back();
    for (size_t i = 0; i < members.size(); ++i) {
      places.push_back(place_of.at(members[i]));
      if (members[i] == monitor_->world_rank()) host_ = host, local_ = i;
    }
  }
  neighbours_ = std::make_unique<ShmTransport>(monitor_, text(key, "/host", host_), hosts_[host_]);
  if (local_ < rails_) {
    std::vector<int> rail;
    for (const auto& members : hosts_) rail.push_back(members[local_]);
    rail_ = std::make_unique<GlooTransport>(monitor_, text(key, "/rail", local_), std::move(rail));
  }
  flat_ = std::make_unique<GlooTransport>(monitor_, key, ranks());
}

// First each host agrees, then each rail between hosts, to which every member brings its host's
// result. So all know of the first host's rejection save ranks beyond the rails; their host tells
// them.
void HierarchicalTransport::agree(const Call& call) {
  std::optional<Rejection> found;
  if (std::string why = call.rejection(rank_, size()); !why.empty()) {
    monitor_->note_rejection(why);
    found = Rejection{monitor_->world_rank(), false, std::move(why)};
  }
  found = neighbours_->compare(call, found);
  if (rail_) found = rail_->compare(call, found);
  if (hosts_[host_].size() > rails_) {
    // A rank beyond the rails knows no other than its own host's, for which the rails may have one
    // that comes before.
    found = neighbours_->compare(call, rail_ ? found : std::nullopt);
  }
  if (found) throw found->error(*monitor_);
}

void HierarchicalTransport::run(const Call& call) {
  const GroupMonitor::Scope scope(*monitor_, call.name(), call.record());
  if (call.is_message()) return pass_message(call);
  agree(call);
  if (call.operation == Operation::kBarrier) return neighbours_->run(call);
  if (call.count == 0) return;
  switch (call.operation) {
    case Operation::kAllReduce: return all_reduce(call);
    case Operation::kAllGather: return all_gather(call);
    case Operation::kReduceScatter: return reduce_scatter(call);
    case Operation::kBroadcast: return broadcast(call);
    default: return flat_->run(call);
  }
}

std::vector<Share> HierarchicalTransport::parts_of(size_t count, size_t item) const {
  const size_t rails = count * item <= kOneRail ? 1 : rails_;
  std::vector<Share> parts(hosts_[host_].size());
  for (size_t i = 0; i < rails; ++i) parts[i] = share_of(count, rails, i);
  return parts;
}

void HierarchicalTransport::all_reduce(const Call& call) {
  const size_t chunk = rails_ * kRailChunk / dtype_size(call.dtype);
  for (size_t from = 0; from < call.count; from += chunk) {
    reduce_chunk(call, from, std::min(chunk, call.count - from));
  }
}

void HierarchicalTransport::reduce_chunk(const Call& call, size_t from, size_t count) {
  const size_t item = dtype_size(call.dtype);
  const nxd_dtype_t wide = sum_dtype(call.dtype);
  const std::vector<Share> parts = parts_of(count, item);
  const Share& own = parts[local_];
  char* sums = sums_.get<char>(own.count * dtype_size(wide) + 1);
  neighbours_->reduce_shares(static_cast<const char*>(call.send) + from * item, count, parts, sums,
                             call.dtype, step_of(call.reduce));
  char* out = static_cast<char*>(call.recv) + from * item;
  char* result = results_.get<char>(own.count * item + 1);
  if (own.count > 0) {
    rail_->run(Call::all_reduce(sums, sums, own.count, wide, step_of(call.reduce)));
    finish(sums, result, own.count, call);
  }
  std::vector<size_t> bytes;
  std::vector<char*> outs;
  for (const Share& part : parts) {
    bytes.push_back(part.count * item);
    outs.push_back(out + part.begin * item);
  }
  neighbours_->gather_blocks(result, bytes, outs);
}

void HierarchicalTransport::finish(const void* sums, void* out, size_t count,
                                   const Call& call) const {
  finish_sums(sums, out, count, call.dtype, call.reduce, ranks().size());
}

// Each rank ends with the sum of what is for it, so that rail i carries what is for the i-th member
// of each host.
void HierarchicalTransport::reduce_scatter(const Call& call) {
  if (!same_on_all_hosts()) return flat_->run(call);
  const size_t chunk = kRailChunk / dtype_size(call.dtype);
  for (size_t from = 0; from < call.count; from += chunk) {
    scatter_chunk(call, from, std::min(chunk, call.count - from));
  }
}

void HierarchicalTransport::scatter_chunk(const Call& call, size_t from, size_t count) {
  const size_t item = dtype_size(call.dtype);
  const nxd_dtype_t wide = sum_dtype(call.dtype);
  const size_t bytes = count * dtype_size(wide);
  char* sums = sums_.get<char>(hosts_.size() * bytes);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    std::vector<Share> shares;
    for (const int place : places_[host]) {
      shares.push_back({static_cast<size_t>(place) * call.count + from, count});
    }
    neighbours_->reduce_shares(call.send, call.count * ranks().size(), shares, sums + host * bytes,
                               call.dtype, step_of(call.reduce));
  }
  char* result = results_.get<char>(bytes);
  rail_->run(Call::reduce_scatter(sums, result, count, wide, step_of(call.reduce)));
  finish(result, static_cast<char*>(call.recv) + from * item, count, call);
}

// Rail i brings what the i-th members have, and the host's ranks share it.
void HierarchicalTransport::all_gather(const Call& call) {
  if (!same_on_all_hosts()) return flat_->run(call);
  const size_t bytes = call.bytes();
  const size_t chunk = std::min(bytes, kRailChunk);
  char* arrived = results_.get<char>(chunk * hosts_.size());
  for (size_t from = 0; from < bytes; from += chunk) {
    const size_t size = std::min(chunk, bytes - from);
    const char* own = static_cast<const char*>(call.send) + from;
    rail_->run(Call::all_gather(own, arrived, size, NXD_DTYPE_U8));
    for (size_t host = 0; host < hosts_.size(); ++host) {
      std::vector<char*> outs;
      for (const int place : places_[host]) {
        outs.push_back(static_cast<char*>(call.recv) + static_cast<size_t>(place) * bytes + from);
      }
      neighbours_->gather_blocks(arrived + host * size, std::vector<size_t>(outs.size(), size),
                                 outs);
    }
  }
}

// The root's host shares the data; its ranks send them on by parts, and the other hosts put the
// parts together.
void HierarchicalTransport::broadcast(const Call& call) {
  size_t root_host = 0, root_local = 0;
  for (size_t host = 0; host < places_.size(); ++host) {
    for (size_t i = 0; i < places_[host].size(); ++i) {
      if (places_[host][i] == call.peer) root_host = host, root_local = i;
    }
  }
  const size_t bytes = call.bytes();
  char* data = static_cast<char*>(call.recv);
  if (host_ == root_host) {
    neighbours_->run(Call::broadcast(data, bytes, NXD_DTYPE_U8, static_cast<int>(root_local)));
  }
  const std::vector<Share> parts = parts_of(bytes, 1);
  const Share& own = parts[local_];
  if (own.count > 0) {
    rail_->run(
        Call::broadcast(data + own.begin, own.count, NXD_DTYPE_U8, static_cast<int>(root_host)));
  }
  if (host_ == root_host) return;
  std::vector<size_t> sizes;
  std::vector<char*> outs;
  for (const Share& part : parts) {
    sizes.push_back(part.count);
    outs.push_back(data + part.begin);
  }
  neighbours_->gather_blocks(data + own.begin, sizes, outs);
}

void HierarchicalTransport::pass_message(const Call& call) {
  call.check_peer(*monitor_, rank_, size());
  const std::vector<int>& near = places_[host_];
  const auto place = std::find(near.begin(), near.end(), call.peer);
  if (place == near.end()) return flat_->run(call);
  Call local = call;
  local.peer = static_cast<int>(place - near.begin());
  neighbours_->run(local);
}

}  // namespace nxd
