#pragma once

#include <functional>
#include <vector>

#include "core/comm/memory/shared_writer.h"
#include "core/comm/transports/shm/shm_agreement.h"

namespace nxd {

// Data that pass through shared memory, chunk by chunk, in rings of slots of which each rank has
// one. Chunks are small enough for the slots to stay in the caches. Data in arenas are read where
// they are instead.
class ShmStaged {
 public:
  explicit ShmStaged(ShmAgreement& agreement) : agreement_(agreement) {}

  void all_reduce(const Call& call);

  // Each rank has blocks for the others: the same for all, or one for each. block_of(from,
  // to) says where they are in its data; a rank that sends nothing has empty ones. take(view) gets
  // this rank's, chunk by chunk.
  struct Block {
    size_t begin = 0, size = 0;  // bytes
  };
  // The part that a rank takes of the blocks that are for it: at this offset of each, so many bytes
  // from there.
  struct ChunkView {
    size_t offset;
    std::vector<const char*> data;  // by sender; null where there is none
    std::vector<size_t> sizes;
  };
  using BlockOf = std::function<Block(size_t from, size_t to)>;
  using Take = std::function<void(const ChunkView& view)>;
  // The functions are std::cref of lambdas: a std::function of the lambda itself takes memory.
  void exchange(const Call& call, bool one_for_each, const BlockOf& block_of, const Take& take);

  // Chunks that ranks of this process let through slots, as their data were in no arena.
  static uint64_t chunks_of_process() noexcept;

 private:
  int rank() const { return agreement_.rank(); }
  int size() const { return agreement_.size(); }
  // Chunks take one slot after the other, call after call: lines that were not used for a while are
  // in no core's cache, which makes writing them cheaper.
  char* slot(int rank, size_t chunk) const {
    return agreement_.segment().slot(rank, slots_used_ + chunk);
  }
  void slots_taken(size_t chunks) noexcept;

  // Lets data through the slots, chunk after chunk: produce fills a slot of this rank, and consume
  // finds the same chunk in the slots of all producers.
  template <class Produce, class Consume>
  void stream(size_t chunks, const std::vector<char>& producers, const Produce& produce,
              const Consume& consume);
  void reduce_together(const Call& call);
  void reduce_by_parts(const Call& call);

  // State of the exchange in progress. It is kept, so that its memory is taken once.
  struct Exchange {
    std::vector<const char*> arenas;  // by rank: data that the others can read where they are
    std::vector<char> producers;      // by rank: whether it must copy
    bool any_arena, any_producer;
    size_t longest;  // bytes of a block
    ChunkView view;
  };
  // Fills all of it but the view: who has blocks, and where they lie.
  void find_senders(const Call& call, const BlockOf& block_of);

  ShmAgreement& agreement_;
  Exchange exchange_;
  size_t slots_used_ = 0;
  SharedWriter writer_;
};

}  // namespace nxd
