// The staged protocol: data pass through shared memory, since some rank's are in ordinary memory.
//
// Each rank has a ring of four slots of 256 KiB, which stay in the caches. A rank fills a slot and
// raises its counter. It looks at the others' counters before it reads their slots, and before it
// fills a slot again. Ranks so work on one chunk while the next is copied in.
//
// Two ranks of an all-reduce both add everything, which takes fewer waits. With more ranks each
// adds one part of a chunk and leaves the sums in its own slot for the others. In the other
// collectives each rank copies in what the others take; data in arenas are read where they are.
//
// Example: ranks A, B and C all-reduce two chunks, A1 being A's part of chunk 1.
//   step 0   A fills slot 0 with chunk 0, except A0, which no other rank reads
//   step 1   A fills slot 1 with chunk 1, except A1; adds A0 over all ranks; writes it to slot 0
//   step 2   A adds A1 over all ranks; writes it to slot 1; copies the sums B0 and C0 from the
//            slots 0 of B and C
//   step 3   A copies the sums B1 and C1
#include "core/comm/transports/shm/shm_staged.h"

#include <algorithm>
#include <atomic>

#include "core/base/dtype.h"
#include "core/comm/pattern.h"
#include "core/comm/reduction.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

// The room of a rank's blocks is whole cache lines of every dtype.
constexpr size_t kPartElements = 64;

std::atomic<uint64_t> all_chunks{0};

// The parts of ranks in each chunk of a buffer, a chunk being what a slot holds.
struct ChunkParts {
  size_t count;     // elements of the buffer
  size_t per_slot;  // elements
  size_t item;      // bytes of an element
  size_t ranks;

  // Bytes of a rank's part, from where the chunk begins.
  ShmStaged::Block of(size_t chunk, size_t rank) const {
    const Share share = share_of(std::min(per_slot, count - chunk * per_slot), ranks, rank);
    return {share.begin * item, share.count * item};
  }
};

}  // namespace

uint64_t ShmStaged::chunks_of_process() noexcept { return all_chunks; }

void ShmStaged::slots_taken(size_t chunks) noexcept {
  slots_used_ += chunks;
  all_chunks.fetch_add(chunks, std::memory_order_relaxed);
}

void ShmStaged::all_reduce(const Call& call) {
  size() == 2 ? reduce_together(call) : reduce_by_parts(call);
}

// A rank's counter goes, from where it stands: produced chunk 0, 1, consumed 0, produced 2,
// consumed 1, and so on. So a chunk is copied in while the peers work on the one before.
template <class Produce, class Consume>
void ShmStaged::stream(size_t chunks, const std::vector<char>& producers, const Produce& produce,
                       const Consume& consume) {
  const uint32_t base = agreement_.progress();
  const auto produced = [&](size_t chunk) {
    return base + (chunk == 0 ? 1 : static_cast<uint32_t>(2 * chunk));
  };
  const auto consumed = [&](size_t chunk) { return base + static_cast<uint32_t>(2 * chunk + 3); };
  const auto put = [&](size_t chunk) {
    if (producers[static_cast<size_t>(rank())]) {
      if (chunk >= ShmSegment::kSlots)
        agreement_.link().wait_for_all(consumed(chunk - ShmSegment::kSlots));
      produce(chunk, slot(rank(), chunk));
    }
    agreement_.link().post(produced(chunk));
  };
  put(0);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) put(chunk + 1);
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      if (producers[static_cast<size_t>(peer)]) agreement_.link().wait(peer, produced(chunk));
    }
    consume(chunk);
    agreement_.link().post(consumed(chunk));
  }
  agreement_.advance_to(consumed(chunks - 1));
  slots_taken(chunks);
}

// Every rank reduces everything: with two, fewer barriers are worth more than less work.
void ShmStaged::reduce_together(const Call& call) {
  const size_t item = dtype_size(call.dtype);
  const size_t per_slot = ShmSegment::kSlot / item;
  const size_t chunks = (call.count + per_slot - 1) / per_slot;
  const char* in = static_cast<const char*>(call.send);
  char* out = static_cast<char*>(call.recv);
  const auto elements = [&](size_t chunk) {
    return std::min(per_slot, call.count - chunk * per_slot);
  };
  std::vector<const void*> parts(static_cast<size_t>(size()));
  stream(
      chunks, std::vector<char>(parts.size(), 1),
      [&](size_t chunk, char* to) {
        writer_.copy(to, in + chunk * ShmSegment::kSlot, elements(chunk) * item);
      },
      [&](size_t chunk) {
        for (int r = 0; r < size(); ++r) {
          parts[static_cast<size_t>(r)] =
              r == rank() ? in + chunk * ShmSegment::kSlot : slot(r, chunk);
        }
        reduce_in_order(parts, out + chunk * ShmSegment::kSlot, elements(chunk), call.dtype,
                        call.reduce);
      });
}

// A chunk fills the slots of all ranks. Each rank reduces one part of it, leaves the result in that
// part of its own slot, which no other rank reads before, and then collects the parts of the
// others. The three stages of a chunk overlap with those of its neighbours.
void ShmStaged::reduce_by_parts(const Call& call) {
  const size_t item = dtype_size(call.dtype);
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const size_t per_slot = ShmSegment::kSlot / item;
  const size_t chunks = (call.count + per_slot - 1) / per_slot;
  const uint32_t base = agreement_.progress();
  const auto at = [&](size_t step, uint32_t stage) {
    return base + static_cast<uint32_t>(3 * step) + stage;
  };
  const ChunkParts parts{call.count, per_slot, item, n};
  const char* in = static_cast<const char*>(call.send);
  char* out = static_cast<char*>(call.recv);
  std::vector<const void*> inputs(n);
  for (size_t step = 0; step < chunks + 2; ++step) {
    if (step < chunks) {
      const size_t from = step * ShmSegment::kSlot;
      if (step >= ShmSegment::kSlots)
        agreement_.link().wait_for_all(at(step - ShmSegment::kSlots + 2, 3));
      char* own = slot(rank(), step);
      const Block mine = parts.of(step, me);
      const size_t size = std::min(ShmSegment::kSlot, call.count * item - from);
      writer_.copy(own, in + from, mine.begin);
      const size_t after = mine.begin + mine.size;
      writer_.copy(own + after, in + from + after, size - after);
    }
    agreement_.link().post(at(step, 1));
    if (step >= 1 && step <= chunks) {
      const size_t chunk = step - 1;
      const Block mine = parts.of(chunk, me);
      agreement_.link().wait_for_all(at(chunk, 1));
      for (size_t r = 0; r < n; ++r) {
        inputs[r] = (r == me ? in + chunk * ShmSegment::kSlot : slot(static_cast<int>(r), chunk)) +
                    mine.begin;
      }
      if (mine.size > 0) {
        char* result = out + chunk * ShmSegment::kSlot + mine.begin;
        reduce_in_order(inputs, result, mine.size / item, call.dtype, call.reduce);
        writer_.copy(slot(rank(), chunk) + mine.begin, result, mine.size);
      }
    }
    agreement_.link().post(at(step, 2));
    if (step >= 2) {
      const size_t chunk = step - 2;
      for (size_t i = 1; i < n; ++i) {
        const size_t r = (me + i) % n;
        const Block part = parts.of(chunk, r);
        agreement_.link().wait(static_cast<int>(r), at(chunk + 1, 2));
        kernels::copy_shared(out + chunk * ShmSegment::kSlot + part.begin,
                             slot(static_cast<int>(r), chunk) + part.begin, part.size);
      }
    }
    agreement_.link().post(at(step, 3));
  }
  agreement_.advance_to(at(chunks + 1, 3));
  slots_taken(chunks);
}

void ShmStaged::find_senders(const Call& call, const BlockOf& block_of) {
  const auto n = static_cast<size_t>(size());
  Exchange& e = exchange_;
  e.arenas.assign(n, nullptr);
  e.producers.assign(n, 0);
  e.any_arena = e.any_producer = false;
  e.longest = 0;
  for (size_t from = 0; from < n; ++from) {
    size_t most = 0;
    for (size_t to = 0; to < n; ++to) most = std::max(most, block_of(from, to).size);
    if (most == 0) continue;
    e.longest = std::max(e.longest, most);
    e.arenas[from] = agreement_.sent_by(static_cast<int>(from), call);
    e.producers[from] = e.arenas[from] == nullptr;
    (e.arenas[from] ? e.any_arena : e.any_producer) = true;
  }
}

void ShmStaged::exchange(const Call& call, bool one_for_each, const BlockOf& block_of,
                         const Take& take) {
  find_senders(call, block_of);
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const char* own = static_cast<const char*>(call.data());
  const std::vector<const char*>& arenas = exchange_.arenas;
  const size_t longest = exchange_.longest;
  ChunkView& view = exchange_.view;
  const size_t room =
      one_for_each ? ShmSegment::kSlot / n / kPartElements * kPartElements : ShmSegment::kSlot;
  const size_t step = exchange_.any_producer ? room : longest;
  const auto size_of = [&](const Block& block, size_t chunk) {
    return std::min(step, block.size - std::min(block.size, chunk * step));
  };
  const auto produce = [&](size_t chunk, char* to) {
    for (size_t r = 0; r < (one_for_each ? n : 1); ++r) {
      if (one_for_each && r == me) continue;
      const Block block = block_of(me, r);
      const size_t size = size_of(block, chunk);
      if (size > 0) writer_.copy(to + r * room, own + block.begin + chunk * step, size);
    }
  };
  view.data.resize(n);
  view.sizes.resize(n);
  const auto consume = [&](size_t chunk) {
    view.offset = chunk * step;
    for (size_t r = 0; r < n; ++r) {
      const Block block = block_of(r, me);
      view.sizes[r] = size_of(block, chunk);
      if (view.sizes[r] == 0) {
        view.data[r] = nullptr;
      } else if (r == me) {
        view.data[r] = own + block.begin + view.offset;
      } else if (arenas[r]) {
        view.data[r] = arenas[r] + block.begin + view.offset;
      } else {
        view.data[r] = slot(static_cast<int>(r), chunk) + (one_for_each ? me * room : 0);
      }
    }
    take(view);
  };
  if (exchange_.any_producer) {
    stream((longest + step - 1) / step, exchange_.producers, produce, consume);
  } else if (longest > 0) {
    consume(0);
  }
  if (exchange_.any_arena) agreement_.barrier();
}

}  // namespace nxd
