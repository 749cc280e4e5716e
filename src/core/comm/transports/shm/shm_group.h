#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/collective_call.h"
#include "core/comm/memory/shared_writer.h"
#include "core/comm/process_group.h"
#include "core/comm/transports/shm/shm_link.h"

namespace nxd {

// A group of ranks of one host over shared memory.
//
// A call starts with every rank's posting: its header, which all compare, and where its buffers
// are. Small data are copied into shared memory beforehand, and that one meeting is all it takes.
// Buffers in arenas are read, and reduced, in place. Other buffers pass through rings of slots, cut
// up so that the slots stay in the caches.
class ShmGroup : public ProcessGroup {
 public:
  // Of the monitor's group or of a part of it, which key names; see ShmLink.
  ShmGroup(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);
  ~ShmGroup() override;

  const std::string& name() const override { return monitor_.name(); }
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  const std::vector<int>& ranks() const override { return link_.ranks(); }
  nxd_transport_t transport() const override { return NXD_TRANSPORT_SHARED_MEMORY; }
  std::shared_ptr<Arena> arena() const override { return link_.share_arena(); }
  void* peer_memory(int peer, const ArenaPlace& place) override {
    return place.inode == 0 ? nullptr : link_.try_address(peer, place);
  }

  void all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                  nxd_reduce_t reduce) override;
  void all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) override;
  void reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                      nxd_reduce_t reduce) override;
  void broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) override;
  void all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) override;
  void send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) override;
  void receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) override;
  void barrier() override;

  void abort() noexcept override { monitor_.abort(); }
  void set_timeout_ms(int64_t timeout_ms) override { monitor_.set_timeout_ms(timeout_ms); }
  void refuse(const char* operation, const std::string& reason) override;
  void refuse_message(Operation operation, int peer, int tag, const std::string& reason) override;

  // Chunks that ranks of this process let through slots, as their buffers were in no arena.
  static uint64_t chunks_through_slots() noexcept;

  // For groups that this one is part of.

  // Compares headers, and no more. A reason refuses the call.
  void compare(const CallHeader& header, const std::string& reason);
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
  // Where the data of each rank are to be had, once all have posted.
  enum class Way {
    kSmall,   // everybody's are copied into shared memory
    kArenas,  // everybody's are in an arena
    kMixed    // some are in nobody's memory but their owner's
  };
  // Starts a call, whose buffers have these sizes unless it is to be refused: posts, meets all, and
  // fails unless they agree.
  Way agree(const CollectiveCall& call, size_t send_bytes, size_t receive_bytes,
            bool may_copy = true);  // false: the call has no way for small data
  Way way_of(const CollectiveCall& call) const;
  void post(const CollectiveCall& call, size_t send_bytes, size_t receive_bytes, bool may_copy);
  void put_header(const CallHeader& header, const std::string& reason);
  void leave_note();  // of what was posted
  void meet_and_compare();
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
  char* sent_by(int rank, const CollectiveCall& call);
  char* received_by(int rank, const CollectiveCall& call);

  // Lets data through the rings of slots, chunk after chunk: produce fills a slot of this rank, and
  // consume finds the same chunk in the slots of all producers.
  template <class Produce, class Consume>
  void stream(size_t chunks, const std::vector<char>& producers, const Produce& produce,
              const Consume& consume);

  void reduce_letters(const CollectiveCall& call, size_t bytes);
  char* letter_of(int rank);  // this rank's copy
  void reduce_arenas(const CollectiveCall& call);
  void reduce_together(const CollectiveCall& call);
  void reduce_by_parts(const CollectiveCall& call);
  // Each rank has blocks for the others: the same for everybody, or one for each. block_of(from,
  // to) says where they are in its data; a rank that sends nothing has empty ones. take(piece) gets
  // this rank's, piece by piece.
  struct Block {
    size_t begin = 0, size = 0;  // bytes
  };
  struct Piece;
  template <class BlockOf, class Take>
  void exchange(const CollectiveCall& call, bool one_for_each, const BlockOf& block_of,
                const Take& take);

  // A collective in progress. When it ends this rank has completed it, or has left for good.
  class Call {
   public:
    Call(ShmGroup& group, const char* operation, const GroupMonitor::CallInfo& info = {})
        : monitored_(group.monitor_, operation, GroupMonitor::Kind::kCollective, info),
          group_(group) {
      group.segment_ = &group.link_.segment();
      group.begun_ = group.progress_;
    }
    ~Call() { group_.link_.completed(group_.progress_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    const GroupMonitor::Call monitored_;
    ShmGroup& group_;
  };

  // Messages; on any threads, at the same time as a collective.
  struct Desk {
    ShmDesk* memory = nullptr;
    uint32_t base = 0;
    SharedWriter writer;
  };
  // Of the messages to one rank, and from one.
  struct Outbox {
    std::mutex mutex;
    uint32_t offered = 0;
  };
  struct Inbox {
    std::mutex mutex;
    uint32_t taken = 0;
    std::map<int, std::deque<ShmOffer>> offers;  // by tag: taken out of the channel
  };
  Desk borrow_desk();
  void return_desk(const Desk& desk);
  void send_offer(ShmOffer offer, const void* buffer, int to);
  void post_offer(const ShmOffer& offer, int to);
  void accept_offer(ShmOffer answer, void* buffer, int from);
  ShmOffer await_offer(int from, int tag);

  ShmLink link_;
  GroupMonitor& monitor_;
  const size_t small_limit_, letter_limit_;

  // Of the collectives.
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

  std::vector<Outbox> outboxes_;  // by peer
  std::vector<Inbox> inboxes_;
  std::mutex desks_mutex_;
  std::vector<Desk> desks_;  // that no message uses
  size_t n_desks_ = 0;
};

}  // namespace nxd
