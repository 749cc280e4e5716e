#include "core/comm/transports/hierarchical_group.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "core/base/dtype.h"
#include "core/comm/reduction.h"

namespace nxd {
namespace {

using Kind = GroupMonitor::Kind;

// Bytes that each rail carries at a time.
constexpr size_t kRailPiece = size_t{4} << 20;
// Up to here one rail alone does as well.
constexpr size_t kOneRail = size_t{32} << 10;
constexpr size_t kPartElements = 64;

size_t divide_up(size_t value, size_t by) { return (value + by - 1) / by; }

}  // namespace

HierarchicalGroup::HierarchicalGroup(std::shared_ptr<GroupMonitor> monitor, const std::string& key,
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
  neighbours_ = std::make_unique<ShmGroup>(monitor_, text(key, "/host", host_), hosts_[host_]);
  if (local_ < rails_) {
    std::vector<int> rail;
    for (const auto& members : hosts_) rail.push_back(members[local_]);
    rail_ = std::make_unique<GlooGroup>(monitor_, text(key, "/rail", local_), std::move(rail));
  }
  flat_ = std::make_unique<GlooGroup>(monitor_, key, ranks());
}

// First the host agrees, then each rail between hosts that do, or with the word of those that do
// not; so the verdict is everywhere save with ranks beyond the rails, which their host tells.
void HierarchicalGroup::agree(const CallHeader& header, const std::string& reason) {
  std::optional<Error> verdict;
  const auto judge = [&](auto& group, const std::string& why) {
    try {
      group.compare(header, why);
    } catch (const Error& e) {
      if (monitor_->has_failed()) throw;
      if (!verdict) verdict = e;
    }
  };
  judge(*neighbours_, reason);
  const bool refused_here = verdict.has_value();
  if (rail_) judge(*rail_, refused_here ? verdict->what() : "");
  const bool all_know = refused_here || hosts_[host_].size() == rails_;
  if (!all_know) judge(*neighbours_, verdict ? verdict->what() : "");
  if (verdict) throw *verdict;
}

void HierarchicalGroup::agree(const CollectiveCall& call) {
  agree(call.header(monitor_->sequence()), call.refusal(size()));
}

void HierarchicalGroup::barrier() {
  const GroupMonitor::Call started(*monitor_, "barrier");
  agree({Operation::kBarrier});
  neighbours_->barrier();
}

void HierarchicalGroup::refuse(const char* operation, const std::string& reason) {
  const GroupMonitor::Call started(*monitor_, operation);
  const CollectiveCall call{Operation::kRefuse};
  agree(call.header(monitor_->sequence()), text(operation, ": ", reason));
}

std::vector<HierarchicalGroup::Range> HierarchicalGroup::parts_of(size_t count, size_t item) const {
  const size_t rails = count * item <= kOneRail ? 1 : rails_;
  const size_t part = divide_up(divide_up(count, rails), kPartElements) * kPartElements;
  std::vector<Range> parts(hosts_[host_].size());
  for (size_t i = 0; i < rails; ++i) {
    parts[i].begin = std::min(i * part, count);
    parts[i].count = std::min(part, count - parts[i].begin);
  }
  return parts;
}

void HierarchicalGroup::all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                                   nxd_reduce_t reduce) {
  const GroupMonitor::Call started(*monitor_, "all_reduce", Kind::kCollective, {count, dtype});
  const CollectiveCall call{Operation::kAllReduce, send, recv, count, dtype, reduce};
  agree(call);
  if (count == 0) return;
  const size_t piece = rails_ * kRailPiece / dtype_size(dtype);
  for (size_t from = 0; from < count; from += piece) {
    reduce_piece(call, from, std::min(piece, count - from));
  }
}

void HierarchicalGroup::reduce_piece(const CollectiveCall& call, size_t from, size_t count) {
  const size_t item = dtype_size(call.dtype);
  const nxd_dtype_t wide = sum_dtype(call.dtype);
  const std::vector<Range> parts = parts_of(count, item);
  const Range& own = parts[local_];
  char* sums = sums_.get<char>(own.count * dtype_size(wide) + 1);
  neighbours_->reduce_ranges(static_cast<const char*>(call.send) + from * item, count, parts, sums,
                             call.dtype, step_of(call.reduce));
  char* out = static_cast<char*>(call.recv) + from * item;
  char* result = results_.get<char>(own.count * item + 1);
  if (own.count > 0) {
    rail_->all_reduce(sums, sums, own.count, wide, step_of(call.reduce));
    finish(sums, result, own.count, call);
  }
  std::vector<size_t> bytes;
  std::vector<char*> outs;
  for (const Range& part : parts) {
    bytes.push_back(part.count * item);
    outs.push_back(out + part.begin * item);
  }
  neighbours_->gather_blocks(result, bytes, outs);
}

void HierarchicalGroup::finish(const void* sums, void* out, size_t count,
                               const CollectiveCall& call) const {
  finish_sums(sums, out, count, call.dtype, call.reduce, ranks().size());
}

// Each rank ends with the sum of what is for it, so that rail i carries what is for the i-th member
// of each host.
void HierarchicalGroup::reduce_scatter(const void* send, void* recv, size_t count,
                                       nxd_dtype_t dtype, nxd_reduce_t reduce) {
  const GroupMonitor::Call started(*monitor_, "reduce_scatter", Kind::kCollective, {count, dtype});
  const CollectiveCall call{Operation::kReduceScatter, send, recv, count, dtype, reduce};
  agree(call);
  if (count == 0) return;
  if (!same_on_all_hosts()) return flat_->reduce_scatter(send, recv, count, dtype, reduce);
  const size_t piece = kRailPiece / dtype_size(dtype);
  for (size_t from = 0; from < count; from += piece) {
    scatter_piece(call, from, std::min(piece, count - from));
  }
}

void HierarchicalGroup::scatter_piece(const CollectiveCall& call, size_t from, size_t count) {
  const size_t item = dtype_size(call.dtype);
  const nxd_dtype_t wide = sum_dtype(call.dtype);
  const size_t bytes = count * dtype_size(wide);
  char* sums = sums_.get<char>(hosts_.size() * bytes);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    std::vector<Range> ranges;
    for (const int place : places_[host]) {
      ranges.push_back({static_cast<size_t>(place) * call.count + from, count});
    }
    neighbours_->reduce_ranges(call.send, call.count * ranks().size(), ranges, sums + host * bytes,
                               call.dtype, step_of(call.reduce));
  }
  char* result = results_.get<char>(bytes);
  rail_->reduce_scatter(sums, result, count, wide, step_of(call.reduce));
  finish(result, static_cast<char*>(call.recv) + from * item, count, call);
}

// Rail i brings what the i-th members have, and the host's ranks share it.
void HierarchicalGroup::all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  const GroupMonitor::Call started(*monitor_, "all_gather", Kind::kCollective, {count, dtype});
  const CollectiveCall call{Operation::kAllGather, send, recv, count, dtype};
  agree(call);
  if (count == 0) return;
  if (!same_on_all_hosts()) return flat_->all_gather(send, recv, count, dtype);
  const size_t bytes = call.bytes(1);
  const size_t piece = std::min(bytes, kRailPiece);
  char* arrived = results_.get<char>(piece * hosts_.size());
  for (size_t from = 0; from < bytes; from += piece) {
    const size_t size = std::min(piece, bytes - from);
    rail_->all_gather(static_cast<const char*>(send) + from, arrived, size, NXD_DTYPE_U8);
    for (size_t host = 0; host < hosts_.size(); ++host) {
      std::vector<char*> outs;
      for (const int place : places_[host]) {
        outs.push_back(static_cast<char*>(recv) + static_cast<size_t>(place) * bytes + from);
      }
      neighbours_->gather_blocks(arrived + host * size, std::vector<size_t>(outs.size(), size),
                                 outs);
    }
  }
}

// The root's host shares the data; its ranks send them on by parts, and the other hosts put the
// parts together.
void HierarchicalGroup::broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) {
  const GroupMonitor::Call started(*monitor_, "broadcast", Kind::kCollective, {count, dtype, root});
  const CollectiveCall call{Operation::kBroadcast, nullptr, buffer, count, dtype,
                            NXD_REDUCE_INVALID,    root};
  agree(call);
  if (count == 0) return;
  size_t root_host = 0, root_local = 0;
  for (size_t host = 0; host < places_.size(); ++host) {
    for (size_t i = 0; i < places_[host].size(); ++i) {
      if (places_[host][i] == root) root_host = host, root_local = i;
    }
  }
  const size_t bytes = call.bytes(1);
  if (host_ == root_host) {
    neighbours_->broadcast(buffer, bytes, NXD_DTYPE_U8, static_cast<int>(root_local));
  }
  const std::vector<Range> parts = parts_of(bytes, 1);
  const Range& own = parts[local_];
  char* data = static_cast<char*>(buffer);
  if (own.count > 0) {
    rail_->broadcast(data + own.begin, own.count, NXD_DTYPE_U8, static_cast<int>(root_host));
  }
  if (host_ == root_host) return;
  std::vector<size_t> sizes;
  std::vector<char*> outs;
  for (const Range& part : parts) {
    sizes.push_back(part.count);
    outs.push_back(data + part.begin);
  }
  neighbours_->gather_blocks(data + own.begin, sizes, outs);
}

void HierarchicalGroup::all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  const GroupMonitor::Call started(*monitor_, "all_to_all", Kind::kCollective, {count, dtype});
  agree({Operation::kAllToAll, send, recv, count, dtype});
  flat_->all_to_all(send, recv, count, dtype);
}

void HierarchicalGroup::send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) {
  const GroupMonitor::Call started(*monitor_, "send", Kind::kMessage, {count, dtype, to});
  check_peer(*monitor_, "to", to, rank(), size(), tag);
  const std::vector<int>& near = places_[host_];
  const auto place = std::find(near.begin(), near.end(), to);
  if (place == near.end()) return flat_->send(buffer, count, dtype, to, tag);
  neighbours_->send(buffer, count, dtype, static_cast<int>(place - near.begin()), tag);
}

void HierarchicalGroup::receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) {
  const GroupMonitor::Call started(*monitor_, "receive", Kind::kMessage, {count, dtype, from});
  check_peer(*monitor_, "from", from, rank(), size(), tag);
  const std::vector<int>& near = places_[host_];
  const auto place = std::find(near.begin(), near.end(), from);
  if (place == near.end()) return flat_->receive(buffer, count, dtype, from, tag);
  neighbours_->receive(buffer, count, dtype, static_cast<int>(place - near.begin()), tag);
}

void HierarchicalGroup::refuse_message(Operation operation, int peer, int tag,
                                       const std::string& reason) {
  const GroupMonitor::Call started(*monitor_, operation_name(operation), Kind::kMessage,
                                   {0, NXD_DTYPE_INVALID, peer});
  check_peer(*monitor_, "peer", peer, rank(), size(), tag);
  const std::vector<int>& near = places_[host_];
  const auto place = std::find(near.begin(), near.end(), peer);
  if (place == near.end()) return flat_->refuse_message(operation, peer, tag, reason);
  neighbours_->refuse_message(operation, static_cast<int>(place - near.begin()), tag, reason);
}

}  // namespace nxd
