#include "core/comm/gloo_group.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/comm/reduction.h"
#include "core/comm/slots.h"
#include "core/comm/socket.h"

namespace nxd {
namespace {

// Bytes of each rank's share that are reduced at a time; bounds the staging memory.
constexpr size_t kShareLimit = size_t{1} << 25;
// Granularity of shares, so that vector loops start aligned.
constexpr size_t kShareElements = 16;
constexpr size_t kBroadcastChunk = size_t{1} << 22;

}  // namespace

GlooGroup::GlooGroup(std::shared_ptr<const LinkShared> shared, std::string key, std::string name,
                     int rank, std::vector<int> ranks, int64_t timeout_ms)
    : link_(std::move(shared), std::move(key), std::move(name), rank, std::move(ranks), timeout_ms),
      agreement_(link_) {}

GlooGroup::~GlooGroup() = default;

void GlooGroup::set_timeout_ms(int64_t timeout_ms) {
  check_argument(timeout_ms > 0, "timeout_ms: expected a positive number, got ", timeout_ms);
  link_.set_timeout_ms(timeout_ms);
}

const GlooGroup::Blocks& GlooGroup::agree(const CollectiveCall& call, size_t payload_size) {
  link_.begin(operation_name(call.operation), sequence_);
  CallHeader header = call.header(sequence_++);
  const std::string refusal = call.refusal(size()).substr(0, agreement_.payload_limit());
  if (!refusal.empty()) {
    header.refused = 1;
    header.payload_size = static_cast<uint32_t>(refusal.size());
    return agreement_.exchange(header, refusal.data());
  }
  const bool root_elsewhere = call.operation == Operation::kBroadcast && call.root != rank();
  if (is_inline(payload_size) && !root_elsewhere) {
    header.payload_size = static_cast<uint32_t>(payload_size);
  }
  const void* data = call.operation == Operation::kBroadcast ? call.recv : call.send;
  return agreement_.exchange(header, data);
}

void GlooGroup::refuse(const char* operation, const std::string& reason) {
  const NoSigpipe quiet;
  link_.begin(operation, sequence_);
  CallHeader header;
  header.sequence = sequence_++;
  header.operation = Operation::kRefuse;
  header.refused = 1;
  const std::string message = text(operation, ": ", reason).substr(0, agreement_.payload_limit());
  header.payload_size = static_cast<uint32_t>(message.size());
  agreement_.exchange(header, message.data());
}

void GlooGroup::barrier() {
  const NoSigpipe quiet;
  agree({Operation::kBarrier}, 0);
}

namespace {

// Bytes of a call's data; 0 when the call will be refused anyway.
size_t bytes_of(const CollectiveCall& call, int size, size_t parts) {
  return call.refusal(size).empty() ? call.count * parts * dtype_size(call.dtype) : 0;
}

}  // namespace

// The large way, by ranges: rank r gets everybody's part of ranges[r], adds them in rank order and
// keeps the result in out.
void GlooGroup::reduce_ranges(const CollectiveCall& call, const std::vector<Range>& ranges,
                              void* out) {
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
  // out may be this rank's own part of send, which is sent to nobody.
  reduce_in_order(parts, out, ranges[me].count, call.dtype, call.reduce);
  exchange.wait_sent();
}

void GlooGroup::all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                           nxd_reduce_t reduce) {
  const NoSigpipe quiet;
  CollectiveCall call{Operation::kAllReduce, send, recv, count, dtype, reduce};
  const size_t bytes = bytes_of(call, size(), 1);
  const Blocks& blocks = agree(call, bytes);
  const auto n = static_cast<size_t>(size());
  if (is_inline(bytes)) {
    std::vector<const void*> parts(n);
    for (size_t r = 0; r < n; ++r) parts[r] = blocks[r].payload;
    if (count > 0) reduce_in_order(parts, recv, count, dtype, reduce);
    return;
  }
  link_.connect_all();
  const size_t item = dtype_size(dtype);
  const size_t piece = n * (kShareLimit / item);
  for (size_t from = 0; from < count; from += piece) {
    const size_t elements = std::min(piece, count - from);
    const size_t share =
        ((elements + n - 1) / n + kShareElements - 1) / kShareElements * kShareElements;
    std::vector<Range> ranges(n);
    for (size_t r = 0; r < n; ++r) {
      const size_t begin = std::min(r * share, elements);
      ranges[r] = {from + begin, std::min(share, elements - begin)};
    }
    // A peer sends its result only after it has had all of this rank's part of it. So receiving in
    // place is safe from the start, and saves the peer from having to ask.
    char* out = static_cast<char*>(recv);
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

void GlooGroup::reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                               nxd_reduce_t reduce) {
  const NoSigpipe quiet;
  const CollectiveCall call{Operation::kReduceScatter, send, recv, count, dtype, reduce};
  const auto n = static_cast<size_t>(size());
  const size_t bytes = bytes_of(call, size(), n);
  const Blocks& blocks = agree(call, bytes);
  const auto me = static_cast<size_t>(rank());
  const size_t item = bytes == 0 ? 1 : dtype_size(dtype);
  if (is_inline(bytes)) {
    std::vector<const void*> parts(n);
    for (size_t r = 0; r < n; ++r) {
      parts[r] = static_cast<const char*>(blocks[r].payload) + me * count * item;
    }
    if (count > 0) reduce_in_order(parts, recv, count, dtype, reduce);
    return;
  }
  link_.connect_all();
  const size_t piece = kShareLimit / item;
  for (size_t from = 0; from < count; from += piece) {
    std::vector<Range> ranges(n);
    for (size_t r = 0; r < n; ++r) ranges[r] = {r * count + from, std::min(piece, count - from)};
    reduce_ranges(call, ranges, static_cast<char*>(recv) + from * item);
  }
}

void GlooGroup::all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  const NoSigpipe quiet;
  const CollectiveCall call{Operation::kAllGather, send, recv, count, dtype};
  const size_t bytes = bytes_of(call, size(), 1);
  const Blocks& blocks = agree(call, bytes);
  if (bytes == 0) return;
  char* out = static_cast<char*>(recv);
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  if (is_inline(bytes)) {
    for (size_t r = 0; r < n; ++r) std::memcpy(out + r * bytes, blocks[r].payload, bytes);
    return;
  }
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

void GlooGroup::all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  const NoSigpipe quiet;
  const CollectiveCall call{Operation::kAllToAll, send, recv, count, dtype};
  const auto n = static_cast<size_t>(size());
  const size_t total = bytes_of(call, size(), n);
  const Blocks& blocks = agree(call, total);
  if (total == 0) return;
  const size_t bytes = total / n;
  const char* in = static_cast<const char*>(send);
  char* out = static_cast<char*>(recv);
  const auto me = static_cast<size_t>(rank());
  if (is_inline(total)) {
    for (size_t r = 0; r < n; ++r) {
      std::memcpy(out + r * bytes, static_cast<const char*>(blocks[r].payload) + me * bytes, bytes);
    }
    return;
  }
  link_.connect_all();
  Exchange exchange(link_);
  for (size_t i = 1; i < n; ++i) {
    const size_t from = (me + n - i) % n;
    exchange.receive(static_cast<int>(from), kAllToAllSlot, out + from * bytes, bytes);
  }
  for (size_t i = 1; i < n; ++i) {
    const size_t to = (me + i) % n;
    exchange.send(static_cast<int>(to), kAllToAllSlot, in + to * bytes, bytes);
  }
  std::memcpy(out + me * bytes, in + me * bytes, bytes);
  exchange.wait_received();
  exchange.wait_sent();
}

void GlooGroup::broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) {
  const NoSigpipe quiet;
  const CollectiveCall call{Operation::kBroadcast, nullptr, buffer, count, dtype,
                            NXD_REDUCE_INVALID,    root};
  const size_t bytes = bytes_of(call, size(), 1);
  const Blocks& blocks = agree(call, bytes);
  if (bytes == 0) return;
  if (!is_inline(bytes)) {
    broadcast_tree(static_cast<char*>(buffer), bytes, root);
  } else if (rank() != root) {
    std::memcpy(buffer, blocks[static_cast<size_t>(root)].payload, bytes);
  }
}

// A binomial tree, chunk by chunk: counted from the root, a rank's parent is its number without the
// lowest bit, and it passes each chunk on as soon as it is there.
void GlooGroup::broadcast_tree(char* data, size_t size_in_bytes, int root) {
  const int n = size();
  const int place = (rank() - root + n) % n;
  const int parent = ((place & (place - 1)) + root) % n;
  std::vector<int> children;
  for (int bit = 1; bit < n && (place & bit) == 0; bit *= 2) {
    if (place + bit < n) children.push_back((place + bit + root) % n);
  }
  std::reverse(children.begin(), children.end());  // the deepest subtree first
  std::vector<int> peers = children;
  if (place != 0) peers.push_back(parent);
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
  if (place != 0) {
    for (Chunk& chunk : chunks) {
      chunk.buffer = link_.buffer(chunk.data, chunk.size);
      link_.post_receive(parent, kBroadcastSlot, *chunk.buffer, chunk.size);
    }
  }
  Exchange exchange(link_);
  for (Chunk& chunk : chunks) {
    if (place != 0) link_.wait_received(parent, *chunk.buffer);
    for (const int child : children) {
      exchange.send(child, kBroadcastSlot, chunk.data, chunk.size);
    }
  }
  exchange.wait_sent();
}

}  // namespace nxd
