// Recursive halving and doubling: an all-reduce is a reduce-scatter, in which pairs of ranks swap
// halves of ever smaller ranges, and an all-gather, which goes the same way back.
//
// The ranks that take part are leaves, 2^k of them. In round i, leaf l and the leaf that differs
// from it in bit i have sums over different ranks of one range. Each keeps a half, gives the other
// half away, and adds what it gets: the lower ranks' sum first, so that both halves have the order
// of one binary tree. Where the ranks are no power of two, a leaf can be a pair: the even rank is
// the proxy of the next one, the extra rank, which takes no part in the rounds. Up to 16 KiB of
// sums are swapped whole, which saves the way back.
//
// Example: ranks 0, 1 and 2 all-reduce 10,000 f32: x0, x1, x2. Leaf 0 is rank 0 with the extra rank
// 1, leaf 1 is rank 2. Halves are whole cache lines, 5,056 and 4,944 elements.
//   before    rank 1 sends x1 to rank 0, which has x0 + x1
//   halving   rank 0 gives its second half and gets the first half of x2; rank 0 now has
//             (x0 + x1) + x2 of elements 0 to 5,055, rank 2 of the others
//   doubling  ranks 0 and 2 swap these results
//   after     rank 0 sends all of the result to rank 1
// A reduce-scatter has every rank's block in place of a range, and ends after halving.
#include "core/comm/transports/gloo/halving_doubling.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/round_up.h"
#include "core/comm/reduction.h"
#include "core/comm/transports/gloo/exchange.h"
#include "core/comm/transports/gloo/slots.h"

namespace nxd {
namespace {

// Bytes of sums that are worked on at a time.
constexpr size_t kRoundBytes = size_t{16} << 20;
// Up to here rounds cost more than bytes, so all ranks compute the whole.
constexpr size_t kWhole = size_t{16} << 10;
// Granularity of halves: whole cache lines of every dtype.
constexpr size_t kUnit = 64;

void combine(bool own_first, char* own, const char* other, size_t count, nxd_dtype_t dtype,
             nxd_reduce_t reduce) {
  const void* first = own_first ? own : other;
  const void* second = own_first ? other : own;
  if (count > 0) reduce_in_order({first, second}, own, count, dtype, reduce);
}

}  // namespace

HalvingDoubling::HalvingDoubling(GlooLink& link) : link_(link) {
  leaves_ = static_cast<int>(std::bit_floor(static_cast<unsigned>(link.size())));
  pairs_ = link.size() - leaves_;
  const int rank = link.rank();
  if (rank >= 2 * pairs_) {
    leaf_ = rank - pairs_;
  } else if (rank % 2 == 0) {
    leaf_ = rank / 2;
  }
}

void HalvingDoubling::connect() {
  if (connected_) return;
  std::vector<int> peers;
  if (is_extra()) {
    peers.push_back(link_.rank() - 1);
  } else {
    if (is_proxy()) peers.push_back(link_.rank() + 1);
    for (int bit = 1; bit < leaves_; bit *= 2) peers.push_back(rank_of(leaf_ ^ bit));
  }
  link_.connect(std::move(peers));
  connected_ = true;
}

void HalvingDoubling::send(int peer, const void* data, size_t bytes) {
  Exchange exchange(link_);
  exchange.send(peer, kReduceSlot, data, bytes);
  exchange.wait_sent();
}

void HalvingDoubling::receive(int peer, void* data, size_t bytes) {
  Exchange exchange(link_);
  exchange.receive(peer, kReduceSlot, data, bytes);
  exchange.wait_received();
}

// own may be sums where they have the same dtype.
void HalvingDoubling::start_sums(const Call& call, const char* own, char* sums, size_t count) {
  const size_t bytes = count * dtype_size(call.dtype);
  const nxd_reduce_t step = step_of(call.reduce);
  std::vector<const void*> parts = {own};
  if (is_proxy()) {
    parts.push_back(arrived_.get<char>(bytes));
    receive(link_.rank() + 1, arrived_.get<char>(bytes), bytes);
  }
  if (sum_dtype(call.dtype) != call.dtype) {
    reduce_in_f32(parts, sums, count, call.dtype, step);
  } else if (parts.size() > 1) {
    reduce_in_order(parts, sums, count, call.dtype, step);
  } else if (own != sums) {
    std::memcpy(sums, own, bytes);
  }
}

void HalvingDoubling::all_reduce(const Call& call) {
  connect();
  const size_t item = dtype_size(call.dtype);
  const size_t chunk = kRoundBytes / dtype_size(sum_dtype(call.dtype));
  for (size_t from = 0; from < call.count; from += chunk) {
    all_reduce_chunk(call, static_cast<const char*>(call.send) + from * item,
                     static_cast<char*>(call.recv) + from * item,
                     std::min(chunk, call.count - from));
  }
}

void HalvingDoubling::all_reduce_chunk(const Call& call, const char* send, char* recv,
                                       size_t count) {
  const size_t item = dtype_size(call.dtype);
  if (is_extra()) {
    this->send(link_.rank() - 1, send, count * item);
    receive(link_.rank() - 1, recv, count * item);
    return;
  }
  const nxd_dtype_t wide = sum_dtype(call.dtype);
  const nxd_reduce_t step = step_of(call.reduce);
  const auto n = static_cast<size_t>(link_.size());
  char* sums = wide == call.dtype ? recv : sums_.get<char>(count * dtype_size(wide));
  start_sums(call, send, sums, count);
  if (count * dtype_size(wide) <= kWhole) {
    exchange_whole(sums, count, wide, step);
    finish_sums(sums, recv, count, call.dtype, call.reduce, n);
  } else {
    const std::vector<Step> steps = halvings(count);
    halve(steps, sums, wide, step);
    const Range own = steps.empty() ? Range{0, count} : steps.back().keep;
    finish_sums(sums + own.begin * dtype_size(wide), recv + own.begin * item, own.count(),
                call.dtype, call.reduce, n);
    double_up(steps, recv, item);
  }
  if (is_proxy()) this->send(link_.rank() + 1, recv, count * item);
}

std::vector<HalvingDoubling::Step> HalvingDoubling::halvings(size_t count) const {
  std::vector<Step> steps;
  Range all{0, count};
  for (int bit = 1; bit < leaves_; bit *= 2) {
    const size_t half = round_up((all.count() + 1) / 2, kUnit);
    const size_t middle = std::min(all.begin + half, all.end);
    const Range low{all.begin, middle}, high{middle, all.end};
    const bool is_lower = (leaf_ & bit) == 0;
    steps.push_back({rank_of(leaf_ ^ bit), is_lower, is_lower ? low : high, is_lower ? high : low});
    all = steps.back().keep;
  }
  return steps;
}

void HalvingDoubling::halve(const std::vector<Step>& steps, char* sums, nxd_dtype_t wide,
                            nxd_reduce_t reduce) {
  const size_t item = dtype_size(wide);
  for (const Step& step : steps) {
    char* arrived = arrived_.get<char>(step.keep.count() * item);
    Exchange exchange(link_);
    exchange.receive(step.peer, kReduceSlot, arrived, step.keep.count() * item);
    exchange.send(step.peer, kReduceSlot, sums + step.give.begin * item, step.give.count() * item);
    exchange.wait_received();
    combine(step.is_lower, sums + step.keep.begin * item, arrived, step.keep.count(), wide, reduce);
    exchange.wait_sent();
  }
}

// The halves come back in the opposite order, as results.
void HalvingDoubling::double_up(const std::vector<Step>& steps, char* data, size_t item) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    Exchange exchange(link_);
    exchange.receive(step->peer, kGatherSlot, data + step->give.begin * item,
                     step->give.count() * item);
    exchange.send(step->peer, kGatherSlot, data + step->keep.begin * item,
                  step->keep.count() * item);
    exchange.wait_received();
    exchange.wait_sent();
  }
}

// Both ends of a round add the same two sums in the same order.
void HalvingDoubling::exchange_whole(char* sums, size_t count, nxd_dtype_t wide,
                                     nxd_reduce_t reduce) {
  const size_t bytes = count * dtype_size(wide);
  for (int bit = 1; bit < leaves_; bit *= 2) {
    const int peer = rank_of(leaf_ ^ bit);
    char* arrived = arrived_.get<char>(bytes);
    Exchange exchange(link_);
    exchange.receive(peer, kReduceSlot, arrived, bytes);
    exchange.send(peer, kReduceSlot, sums, bytes);
    exchange.wait_received();
    exchange.wait_sent();
    combine((leaf_ & bit) == 0, sums, arrived, count, wide, reduce);
  }
}

void HalvingDoubling::reduce_scatter(const Call& call) {
  connect();
  if (order_.empty()) {
    // The first round cuts by the lowest bit of the leaf, and so on: bits reversed.
    order_.assign(1, 0);
    for (int bit = leaves_ / 2; bit >= 1; bit /= 2) {
      std::vector<int> next;
      for (const int leaf : order_) next.push_back(leaf);
      for (const int leaf : order_) next.push_back(leaf + bit);
      order_ = std::move(next);
    }
  }
  const size_t all = dtype_size(sum_dtype(call.dtype)) * static_cast<size_t>(link_.size());
  const size_t chunk = std::max<size_t>(kRoundBytes / all, kUnit);
  for (size_t from = 0; from < call.count; from += chunk) {
    reduce_scatter_chunk(call, from, std::min(chunk, call.count - from));
  }
}

// Every rank's block, by leaf, in the order in which halving cuts them off.
void HalvingDoubling::pack(const Call& call, size_t from, size_t count, char* packed) {
  const size_t item = dtype_size(call.dtype);
  const auto* data = static_cast<const char*>(call.send);
  for (const int leaf : order_) {
    for (int rank = rank_of(leaf); rank <= rank_of(leaf) + (leaf < pairs_ ? 1 : 0); ++rank) {
      const size_t at = static_cast<size_t>(rank) * call.count + from;
      std::memcpy(packed, data + at * item, count * item);
      packed += count * item;
    }
  }
}

std::vector<HalvingDoubling::Step> HalvingDoubling::scatterings(size_t count) {
  std::vector<size_t> starts = {0};
  for (const int leaf : order_) {
    starts.push_back(starts.back() + (leaf < pairs_ ? 2 : 1) * count);
  }
  std::vector<Step> steps;
  size_t first = 0, last = order_.size();
  for (int bit = 1; bit < leaves_; bit *= 2) {
    const size_t middle = (first + last) / 2;
    const Range low{starts[first], starts[middle]}, high{starts[middle], starts[last]};
    const bool is_lower = (leaf_ & bit) == 0;
    steps.push_back({rank_of(leaf_ ^ bit), is_lower, is_lower ? low : high, is_lower ? high : low});
    (is_lower ? last : first) = middle;
  }
  return steps;
}

void HalvingDoubling::reduce_scatter_chunk(const Call& call, size_t from, size_t count) {
  const size_t item = dtype_size(call.dtype);
  const nxd_dtype_t wide = sum_dtype(call.dtype);
  const auto n = static_cast<size_t>(link_.size());
  char* out = static_cast<char*>(call.recv) + from * item;
  char* packed = packed_.get<char>(n * count * item);
  pack(call, from, count, packed);
  if (is_extra()) {
    send(link_.rank() - 1, packed, n * count * item);
    receive(link_.rank() - 1, out, count * item);
    return;
  }
  char* sums = wide == call.dtype ? packed : sums_.get<char>(n * count * dtype_size(wide));
  start_sums(call, packed, sums, n * count);
  const std::vector<Step> steps = scatterings(count);
  halve(steps, sums, wide, step_of(call.reduce));
  const char* own = sums + (steps.empty() ? 0 : steps.back().keep.begin * dtype_size(wide));
  finish_sums(own, out, count, call.dtype, call.reduce, n);
  if (!is_proxy()) return;
  char* result = arrived_.get<char>(count * item);
  finish_sums(own + count * dtype_size(wide), result, count, call.dtype, call.reduce, n);
  send(link_.rank() + 1, result, count * item);
}

}  // namespace nxd
