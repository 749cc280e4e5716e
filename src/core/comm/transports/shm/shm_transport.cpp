// Collectives among the ranks of one host, over memory that all of them map.
//
// A call begins with an agreement (shm_agreement.cpp). Each rank writes a call descriptor, raises
// its counter, and waits for the counters of the others. The ranks then compare digests of their
// descriptors. The places of all data give the protocol, which is the same on every rank:
//   eager       all data were few enough to be copied into shared memory before the agreement
//   zero-copy   all data are in arenas, where the ranks read and write one another's
//   staged      the rest: chunk by chunk through slots in shared memory
// All protocols reduce in rank order, so the choice changes no bit.
//
// Example: ranks A, B and C all-reduce f32 elements.
//   300                            eager messages, which come without the agreement: shm_eager.cpp
//   10,000 in ordinary memory      eager: 40 KB are below the limit of 128 KB / 3
//   10,000, all in arenas          zero-copy
//   10,000, only A's in an arena   staged: B and C have copied theirs, and A has not
//   1,000,000 in ordinary memory   staged, in 16 chunks
#include "core/comm/transports/shm/shm_transport.h"

#include <functional>

#include "core/base/dtype.h"
#include "core/comm/reduction.h"
#include "core/comm/transports/shm/shm_zero_copy.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

using Block = ShmStaged::Block;
using ChunkView = ShmStaged::ChunkView;
using Protocol = ShmAgreement::Protocol;

bool has_block_for_each(Operation operation) {
  return operation == Operation::kReduceScatter || operation == Operation::kAllToAll;
}

void copy(void* to, const void* from, size_t bytes) {
  if (to != from) kernels::copy_shared(to, from, bytes);
}

// The reduction of what all ranks sent, to out at the view's offset.
void reduce_chunk(const ChunkView& view, void* out, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  const size_t size = view.sizes[0];
  if (size == 0) return;
  reduce_in_order({view.data.begin(), view.data.end()}, static_cast<char*>(out) + view.offset,
                  size / dtype_size(dtype), dtype, reduce);
}

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<GroupMonitor> monitor, std::string key,
                           std::vector<int> ranks)
    : link_(std::move(monitor), std::move(key), std::move(ranks)),
      agreement_(link_),
      eager_(agreement_),
      staged_(agreement_),
      messages_(link_) {}

void ShmTransport::run(const Call& call) {
  if (call.is_message()) return messages_.run(call);
  const ShmAgreement::Scope scope(agreement_, call);
  const bool reduces_all = call.operation == Operation::kAllReduce;
  const size_t bytes = call.bytes();
  if (reduces_all && eager_.takes_message(bytes) &&
      call.rejection(link_.rank(), link_.size()).empty()) {
    return eager_.all_reduce_messages(call, bytes);
  }
  const size_t blocks = has_block_for_each(call.operation) ? link_.ranks().size() : 1;
  const Protocol protocol = agreement_.agree(call, bytes * blocks, reduces_all ? bytes : 0);
  if (bytes == 0) return;
  if (protocol == Protocol::kEager) {
    eager_.run(call);
  } else if (!reduces_all) {
    exchange(call);
  } else if (protocol == Protocol::kZeroCopy) {
    all_reduce_in_arenas(agreement_, call);
  } else {
    staged_.all_reduce(call);
  }
}

// Blocks that pass through slots, or are read in arenas.
void ShmTransport::exchange(const Call& call) {
  const size_t bytes = call.bytes();
  const bool one_for_each = has_block_for_each(call.operation);
  const auto block_of = [&](size_t from, size_t to) -> Block {
    if (call.operation != Operation::kBroadcast) return {one_for_each ? to * bytes : 0, bytes};
    return {0, from == static_cast<size_t>(call.peer) ? bytes : 0};
  };
  char* out = static_cast<char*>(call.recv);
  const auto take = [&](const ChunkView& view) {
    if (call.operation == Operation::kReduceScatter) {
      return reduce_chunk(view, out, call.dtype, call.reduce);
    }
    const bool broadcasts = call.operation == Operation::kBroadcast;
    for (size_t r = 0; r < view.data.size(); ++r) {
      if (view.sizes[r] == 0) continue;
      copy(out + (broadcasts ? 0 : r * bytes) + view.offset, view.data[r], view.sizes[r]);
    }
  };
  staged_.exchange(call, one_for_each, std::cref(block_of), std::cref(take));
}

std::optional<Rejection> ShmTransport::compare(const Call& call,
                                               const std::optional<Rejection>& own) {
  const ShmAgreement::Scope scope(agreement_, call);
  return agreement_.compare(call, own);
}

void ShmTransport::reduce_shares(const void* data, size_t count, const std::vector<Share>& shares,
                                 void* out, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  // The descriptor says where the data are; what the call is has been agreed on.
  const Call call{Operation::kBarrier, data};
  const ShmAgreement::Scope scope(agreement_, call);
  const size_t item = dtype_size(dtype);
  agreement_.agree(call, count * item, 0, false);
  const bool widen = dtype_is_16_bit_float(dtype);
  const auto block_of = [&](size_t, size_t to) {
    return Block{shares[to].begin * item, shares[to].count * item};
  };
  const auto take = [&](const ChunkView& view) {
    if (!widen) return reduce_chunk(view, out, dtype, reduce);
    if (view.sizes[0] == 0) return;
    reduce_in_f32({view.data.begin(), view.data.end()},
                  static_cast<float*>(out) + view.offset / item, view.sizes[0] / item, dtype,
                  reduce);
  };
  staged_.exchange(call, true, std::cref(block_of), std::cref(take));
}

void ShmTransport::gather_blocks(const void* own, const std::vector<size_t>& bytes,
                                 const std::vector<char*>& outs) {
  const Call call{Operation::kBarrier, own};
  const ShmAgreement::Scope scope(agreement_, call);
  agreement_.agree(call, bytes[static_cast<size_t>(link_.rank())], 0, false);
  const auto block_of = [&](size_t from, size_t) { return Block{0, bytes[from]}; };
  const auto take = [&](const ChunkView& view) {
    for (size_t r = 0; r < view.data.size(); ++r) {
      if (view.data[r]) copy(outs[r] + view.offset, view.data[r], view.sizes[r]);
    }
  };
  staged_.exchange(call, false, std::cref(block_of), std::cref(take));
}

}  // namespace nxd
