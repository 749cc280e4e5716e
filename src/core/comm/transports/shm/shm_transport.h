#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/memory/shared_writer.h"
#include "core/comm/transport.h"
#include "core/comm/transports/shm/shm_link.h"
#include "core/comm/transports/shm/shm_messages.h"

namespace nxd {

// Among ranks of one host, over shared memory.
//
// A call starts with every rank's posting: its header, which all compare, and where its buffers
// are. Small data are copied into shared memory beforehand, and that one meeting is all it takes.
// Buffers in arenas are read, and reduced, in place. Other buffers pass through rings of slots, cut
// up so that the slots stay in the caches.
class ShmTransport : public Transport {
 public:
  // Serves the monitor's group or a part of it, which key names; see ShmLink.
  ShmTransport(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);

  nxd_transport_t kind() const override { return NXD_TRANSPORT_SHARED_MEMORY; }
  void run(const Call& call) override;
  std::shared_ptr<Arena> arena() const override { return link_.share_arena(); }
  void* peer_memory(int peer, const ArenaPlace& place) override {
    return place.inode == 0 ? nullptr : link_.try_address(peer, place);
  }

  // Chunks that ranks of this process let through slots, as their buffers were in no arena.
  static uint64_t chunks_through_slots() noexcept;

  // For groups that this one is part of.

  // Compares headers, and no more. A rejection of this rank's is the others' too.
  std::optional<Rejection> compare(const Call& call, const std::optional<Rejection>& own);
  // Part of an array, in elements.
  struct Range {
    size_t begin = 0, count = 0;
  };
  // Leaves in out what all ranks' data have in ranges[rank], reduced; 16-bit floats as f32.
  void reduce_ranges(const void* data, size_t count, const std::vector<Range>& ranges, void* out,
                     nxd_dtype_t dtype, nxd_reduce_t reduce);
  // Gives every rank what each has: bytes[r] bytes of rank r, to outs[r].
  void gather_blocks(const void* own, const std::vector<size_t>& bytes,
                     const std::vector<char*>& outs);

 private:
  int rank() const { return link_.rank(); }
  int size() const { return link_.size(); }

  // Where the data of each rank are to be had, once all have posted.
  enum class Way {
    kSmall,   // everybody's are copied into shared memory
    kArenas,  // everybody's are in an arena
    kMixed    // some are in nobody's memory but their owner's
  };
  // Starts a call, whose buffers have these sizes unless it is to be rejected: posts, meets all,
  // and fails unless they agree.
  Way agree(const Call& call, size_t send_bytes, size_t receive_bytes,
            bool may_copy = true);  // false: the call has no way for small data
  Way way_of(const Call& call) const;
  void post(const Call& call, size_t send_bytes, size_t receive_bytes, bool may_copy);
  void post_rejection(const Call& call, const Rejection& rejection);
  void leave_note();  // of what was posted
  std::optional<Rejection> meet_and_compare();
  void meet_in_agreement();  // fails instead
  // Meets all: nobody needs this rank's buffers any more.
  void meet();

  const ShmPosting& posting(int rank) const { return segment_->cell(rank).postings[calls_ % 2]; }
  uint64_t note_of(int rank) const {
    return segment_->cell(rank).progress.notes[calls_ % 2].load(std::memory_order_relaxed);
  }
  char* small(int rank) const { return segment_->small(rank, calls_); }
  // Chunks take one slot after the other, call after call: lines that were not used for a while are
  // in no core's cache, which makes writing them cheaper.
  char* slot(int rank, size_t chunk) const { return segment_->slot(rank, slots_used_ + chunk); }
  // A rank's data in its arena; null when they are not in one.
  char* sent_by(int rank, const Call& call);
  char* received_by(int rank, const Call& call);

  // Lets data through the rings of slots, chunk after chunk: produce fills a slot of this rank, and
  // consume finds the same chunk in the slots of all producers.
  template <class Produce, class Consume>
  void stream(size_t chunks, const std::vector<char>& producers, const Produce& produce,
              const Consume& consume);

  void all_reduce(const Call& call);
  void all_gather(const Call& call);
  void reduce_scatter(const Call& call);
  void broadcast(const Call& call);
  void all_to_all(const Call& call);

  void reduce_letters(const Call& call, size_t bytes);
  char* letter_of(int rank);  // this rank's copy
  void reduce_arenas(const Call& call);
  void reduce_together(const Call& call);
  void reduce_by_parts(const Call& call);
  // Each rank has blocks for the others: the same for everybody, or one for each. block_of(from,
  // to) says where they are in its data; a rank that sends nothing has empty ones. take(piece) gets
  // this rank's, piece by piece.
  struct Block {
    size_t begin = 0, size = 0;  // bytes
  };
  struct Piece;
  template <class BlockOf, class Take>
  void exchange(const Call& call, bool one_for_each, const BlockOf& block_of, const Take& take);

  // A collective in progress. When it ends this rank has completed it, or has left for good.
  class Scope {
   public:
    Scope(ShmTransport& transport, const Call& call)
        : monitored_(transport.monitor_, call.name(), call.record()), transport_(transport) {
      transport.segment_ = &transport.link_.segment();
      transport.begun_ = transport.progress_;
    }
    ~Scope() { transport_.link_.completed(transport_.progress_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const GroupMonitor::Scope monitored_;
    ShmTransport& transport_;
  };

  ShmLink link_;
  GroupMonitor& monitor_;
  const size_t small_limit_, letter_limit_;

  ShmSegment* segment_ = nullptr;
  uint32_t progress_ = 0;
  uint32_t begun_ = 0;  // the progress that the call in progress began with
  size_t calls_ = 0;
  void slots_taken(size_t chunks) noexcept;
  size_t slots_used_ = 0;
  SharedWriter writer_;
  uint64_t note_ = 0;                // of this rank, in the call in progress
  std::vector<const void*> inputs_;  // of a small reduction
  std::vector<char> letters_;        // of the peers
  bool all_attached_ = false;

  ShmMessages messages_;
};

}  // namespace nxd
