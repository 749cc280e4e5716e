// Collectives between any ranks, over TCP. Gloo carries the messages; the algorithms are ours.
//
// A call begins with an agreement by dissemination: in each of ceil(log2 n) rounds a rank sends to
// one rank and receives from another, at twice the distance of the round before. Among few ranks
// all headers travel, and with them data of up to 64 KB / n (agreement.cpp). Among many, which are
// NXD_LARGE_GROUP or more, a summary of bounded size travels (call_summary.h), without data. More
// data:
//                    few ranks                           many ranks
//   all_reduce       a part to each rank, sums to all    halving and doubling: halving_doubling.cpp
//   reduce_scatter   a part to each rank                 halving: halving_doubling.cpp
//   all_gather       from each to all                    dissemination
//   broadcast        binomial tree, in chunks            the same
//   all_to_all       from each to all                    the same, with 16 peers at a time
//
// Example: ranks 0, 1 and 2, a few.
//   agreement    round 1: 0 sends to 2, 1 to 0, 2 to 1; round 2: 0 sends to 1, 1 to 2, 2 to 0
//   all_reduce   0 sends part 1 to rank 1 and part 2 to rank 2; adds part 0 of ranks 0, 1 and 2;
//                sends the sums of part 0 to both; gets those of parts 1 and 2
//   broadcast    from 0: 0 sends each chunk of 4 MiB to 2 and to 1, which have no children. With a
//                rank 3, rank 2 would pass each chunk on to it as soon as it has come.
#include "core/comm/transports/gloo/gloo_transport.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/comm/net/socket.h"
#include "core/comm/reduction.h"
#include "core/comm/transports/gloo/slots.h"

namespace nxd {
namespace {

// Bytes of each rank's share that are reduced at a time; bounds the staging memory.
constexpr size_t kShareLimit = size_t{1} << 25;
// Granularity of shares, so that vector loops start aligned.
constexpr size_t kShareElements = 16;
constexpr size_t kBroadcastChunk = size_t{1} << 22;
// Peers that an all_to_all of many ranks exchanges with at a time.
constexpr size_t kPeersAtATime = 16;

}  // namespace

GlooTransport::GlooTransport(std::shared_ptr<GroupMonitor> monitor, std::string key,
                             std::vector<int> ranks)
    : link_(std::move(monitor), std::move(key), std::move(ranks)),
      monitor_(link_.monitor()),
      many_(link_.size() >= monitor_.shared().large_group),
      agreement_(link_),
      summary_agreement_(link_),
      halving_doubling_(link_),
      messages_(link_) {}

void GlooTransport::run(const Call& call) {
  const NoSigpipe quiet;
  if (call.is_message()) return messages_.run(call);
  const GroupMonitor::Scope scope(monitor_, call.name(), call.record());
  switch (call.operation) {
    case Operation::kAllReduce: return all_reduce(call);
    case Operation::kAllGather: return all_gather(call);
    case Operation::kReduceScatter: return reduce_scatter(call);
    case Operation::kBroadcast: return broadcast(call);
    case Operation::kAllToAll: return all_to_all(call);
    default: agree(call, 0);
  }
}

size_t GlooTransport::agree(const Call& call, size_t parts) {
  CallHeader header = call.header(monitor_.sequence());
  std::optional<Rejection> own;
  size_t bytes = 0;
  if (std::string why = call.rejection(rank(), size()); !why.empty()) {
    monitor_.note_rejection(why);
    own = Rejection{monitor_.world_rank(), false, std::move(why)};
  } else {
    bytes = call.bytes(parts);
    const bool root_elsewhere = call.operation == Operation::kBroadcast && call.peer != rank();
    if (is_inline(bytes) && !root_elsewhere) header.payload_size = static_cast<uint32_t>(bytes);
  }
  if (const auto found = exchange(header, own, call.data())) throw found->error(monitor_);
  return bytes;
}

std::optional<Rejection> GlooTransport::exchange(CallHeader header,
                                                 const std::optional<Rejection>& own,
                                                 const void* payload) {
  const WaitScope wait;
  if (many_) return summary_agreement_.exchange(header, own);
  if (!own) return agreement_.exchange(header, payload);
  std::string reason(std::min(own->why.size(), agreement_.payload_limit()), 0);
  header.reject(*own, reason.data(), reason.size());
  return agreement_.exchange(header, reason.data());
}

std::optional<Rejection> GlooTransport::compare(const Call& call,
                                                const std::optional<Rejection>& own) {
  const NoSigpipe quiet;
  const GroupMonitor::Scope scope(monitor_, call.name(), call.record());
  return exchange(call.header(monitor_.sequence()), own, nullptr);
}

// The large way, by ranges: rank r gets all ranks' parts of ranges[r], adds them in rank order and
// keeps the result in out.
void GlooTransport::reduce_ranges(const Call& call, const std::vector<Share>& ranges, void* out) {
  const size_t item = dtype_size(call.dtype);
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const char* data = static_cast<const char*>(call.send);
  const size_t mine = ranges[me].count * item;
  if (staging_.size() < mine * (n - 1)) staging_.resize(mine * (n - 1));

  Exchange exchange(link_);
  std::vector<const void*> parts(n);
  parts[me] = data + ranges[me].begin * item;
  for (size_t i = 1; i < n; ++i) {
    const size_t from = (me + n - i) % n;
    char* place = staging_.data() + (i - 1) * mine;
    parts[from] = place;
    exchange.receive(static_cast<int>(from), kReduceSlot, place, mine);
  }
  for (size_t i = 1; i < n; ++i) {
    const size_t to = (me + i) % n;
    exchange.send(static_cast<int>(to), kReduceSlot, data + ranges[to].begin * item,
                  ranges[to].count * item);
  }
  exchange.wait_received();
  // out may be this rank's own part of send, which is sent to no rank.
  reduce_in_order(parts, out, ranges[me].count, call.dtype, call.reduce);
  exchange.wait_sent();
}

void GlooTransport::all_reduce(const Call& call) {
  const size_t bytes = agree(call, 1);
  if (bytes == 0) return;
  if (is_inline(bytes)) {
    std::vector<const void*> parts(static_cast<size_t>(size()));
    for (size_t r = 0; r < parts.size(); ++r) parts[r] = sent_along(r);
    return reduce_in_order(parts, call.recv, call.count, call.dtype, call.reduce);
  }
  many_ ? halving_doubling_.all_reduce(call) : all_reduce_chunks(call);
}

// Reduce-scatter and all-gather, by chunks that bound the staging memory.
void GlooTransport::all_reduce_chunks(const Call& call) {
  const auto n = static_cast<size_t>(size());
  link_.connect_all();
  const size_t item = dtype_size(call.dtype);
  const size_t chunk = n * (kShareLimit / item);
  for (size_t from = 0; from < call.count; from += chunk) {
    const size_t elements = std::min(chunk, call.count - from);
    std::vector<Share> ranges(n);
    for (size_t r = 0; r < n; ++r) {
      ranges[r] = share_of(elements, n, r, kShareElements);
      ranges[r].begin += from;
    }
    // A peer sends its result only after it has had all of this rank's part of it. So receiving in
    // place is safe from the start, and saves the peer from having to ask.
    char* out = static_cast<char*>(call.recv);
    Exchange gather(link_);
    const auto me = static_cast<size_t>(rank());
    for (size_t i = 1; i < n; ++i) {
      const size_t other = (me + n - i) % n;
      gather.receive(static_cast<int>(other), kGatherSlot, out + ranges[other].begin * item,
                     ranges[other].count * item);
    }
    char* own = out + ranges[me].begin * item;
    reduce_ranges(call, ranges, own);
    for (size_t i = 1; i < n; ++i) {
      gather.send(static_cast<int>((me + i) % n), kGatherSlot, own, ranges[me].count * item);
    }
    gather.wait_received();
    gather.wait_sent();
  }
}

void GlooTransport::reduce_scatter(const Call& call) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const size_t bytes = agree(call, n);
  if (bytes == 0) return;
  if (many_) return halving_doubling_.reduce_scatter(call);
  if (is_inline(bytes)) {
    std::vector<const void*> parts(n);
    for (size_t r = 0; r < n; ++r) parts[r] = sent_along(r) + me * call.bytes();
    return reduce_in_order(parts, call.recv, call.count, call.dtype, call.reduce);
  }
  link_.connect_all();
  const size_t item = dtype_size(call.dtype);
  const size_t chunk = kShareLimit / item;
  for (size_t from = 0; from < call.count; from += chunk) {
    std::vector<Share> ranges(n);
    for (size_t r = 0; r < n; ++r) {
      ranges[r] = {r * call.count + from, std::min(chunk, call.count - from)};
    }
    reduce_ranges(call, ranges, static_cast<char*>(call.recv) + from * item);
  }
}

void GlooTransport::all_gather(const Call& call) {
  const size_t bytes = agree(call, 1);
  if (bytes == 0) return;
  char* out = static_cast<char*>(call.recv);
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  if (is_inline(bytes)) {
    for (size_t r = 0; r < n; ++r) std::memcpy(out + r * bytes, sent_along(r), bytes);
    return;
  }
  if (!many_) return gather_from_all(call.send, out, bytes);
  if (out + me * bytes != call.send) std::memcpy(out + me * bytes, call.send, bytes);
  gather_in_rounds(out, bytes);
}

void GlooTransport::gather_from_all(const void* send, char* out, size_t bytes) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  link_.connect_all();
  Exchange exchange(link_);
  for (size_t i = 1; i < n; ++i) {
    const size_t from = (me + n - i) % n;
    exchange.receive(static_cast<int>(from), kGatherSlot, out + from * bytes, bytes);
  }
  for (size_t i = 1; i < n; ++i) {
    exchange.send(static_cast<int>((me + i) % n), kGatherSlot, send, bytes);
  }
  if (out + me * bytes != send) std::memcpy(out + me * bytes, send, bytes);
  exchange.wait_received();
  exchange.wait_sent();
}

// The way of the agreement (see Agreement), with every block in its place from the start. The
// blocks that a rank has are its own and those of the ranks after it, so at most two runs in
// memory.
void GlooTransport::gather_in_rounds(char* out, size_t bytes) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const std::vector<Exchanged> rounds = dissemination(rank(), size());
  std::vector<int> peers;
  for (const Exchanged& round : rounds) {
    peers.push_back(round.from);
    peers.push_back(round.to);
  }
  link_.connect(peers);
  for (const auto& [target, source, blocks] : rounds) {
    const auto from = static_cast<size_t>(source);
    const auto run = [n, most = blocks](size_t first) { return std::min(most, n - first); };
    Exchange exchange(link_);
    exchange.receive(source, kGatherSlot, out + from * bytes, run(from) * bytes);
    exchange.receive(source, kGatherSlot, out, (blocks - run(from)) * bytes);
    exchange.send(target, kGatherSlot, out + me * bytes, run(me) * bytes);
    exchange.send(target, kGatherSlot, out, (blocks - run(me)) * bytes);
    exchange.wait_received();
    exchange.wait_sent();
  }
}

void GlooTransport::all_to_all(const Call& call) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const size_t total = agree(call, n);
  if (total == 0) return;
  const size_t bytes = call.bytes();
  const char* in = static_cast<const char*>(call.send);
  char* out = static_cast<char*>(call.recv);
  if (is_inline(total)) {
    for (size_t r = 0; r < n; ++r) {
      std::memcpy(out + r * bytes, sent_along(r) + me * bytes, bytes);
    }
    return;
  }
  std::memcpy(out + me * bytes, in + me * bytes, bytes);
  exchange_with_all(in, out, bytes);
}

// Each has something else for each other, so there are as many connections and messages as ranks;
// among many, some at a time. All ranks go by the same distances, so those at the two ends of a
// connection come to it together.
void GlooTransport::exchange_with_all(const char* in, char* out, size_t bytes) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const size_t at_a_time = many_ ? kPeersAtATime : n;
  for (size_t first = 1; first < n; first += at_a_time) {
    const size_t end = std::min(first + at_a_time, n);
    std::vector<int> peers;
    for (size_t i = first; i < end; ++i) {
      peers.push_back(static_cast<int>((me + i) % n));
      peers.push_back(static_cast<int>((me + n - i) % n));
    }
    link_.connect(peers);
    Exchange exchange(link_);
    for (size_t i = first; i < end; ++i) {
      const size_t from = (me + n - i) % n;
      exchange.receive(static_cast<int>(from), kAllToAllSlot, out + from * bytes, bytes);
    }
    for (size_t i = first; i < end; ++i) {
      const size_t to = (me + i) % n;
      exchange.send(static_cast<int>(to), kAllToAllSlot, in + to * bytes, bytes);
    }
    exchange.wait_received();
    exchange.wait_sent();
  }
}

void GlooTransport::broadcast(const Call& call) {
  const size_t bytes = agree(call, 1);
  if (bytes == 0) return;
  if (!is_inline(bytes)) {
    broadcast_tree(static_cast<char*>(call.recv), bytes, call.peer);
  } else if (rank() != call.peer) {
    std::memcpy(call.recv, sent_along(static_cast<size_t>(call.peer)), bytes);
  }
}

// Along a binomial tree, chunk by chunk: a rank passes each chunk on as soon as it is there.
void GlooTransport::broadcast_tree(char* data, size_t size_in_bytes, int root) {
  const auto [parent, children] = binomial_tree(rank(), size(), root);
  std::vector<int> peers = children;
  if (parent >= 0) peers.push_back(parent);
  link_.connect(peers);

  struct Chunk {
    char* data;
    size_t size;
    GlooLink::Buffer buffer;
  };
  std::vector<Chunk> chunks;
  for (size_t at = 0; at < size_in_bytes; at += kBroadcastChunk) {
    chunks.push_back({data + at, std::min(kBroadcastChunk, size_in_bytes - at), nullptr});
  }
  if (parent >= 0) {
    for (Chunk& chunk : chunks) {
      chunk.buffer = link_.buffer(chunk.data, chunk.size);
      link_.post_receive(parent, kBroadcastSlot, *chunk.buffer, chunk.size);
    }
  }
  Exchange exchange(link_);
  for (Chunk& chunk : chunks) {
    if (parent >= 0) link_.wait_received(parent, *chunk.buffer);
    for (const int child : children) {
      exchange.send(child, kBroadcastSlot, chunk.data, chunk.size);
    }
  }
  exchange.wait_sent();
}

}  // namespace nxd
