#pragma once

#include <optional>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/memory/shared_writer.h"
#include "core/comm/transports/shm/shm_link.h"

namespace nxd {

// The beginning of a collective among ranks of a host. Each posts its call descriptor: the header
// of its call and the place of its data. All wait for one another, compare, and know by which
// protocol the data go. Small data are copied into shared memory before, and need this one barrier
// only.
class ShmAgreement {
 public:
  // The protocol of a call's data, chosen by the places where all ranks have them.
  enum class Protocol {
    kEager,     // all data are copied into shared memory
    kZeroCopy,  // all data are in arenas
    kStaged     // some data are in their owner's memory alone
  };

  explicit ShmAgreement(ShmLink& link);

  // A collective in progress. When it ends this rank has completed it, or leaves for good: then it
  // is not counted as completed, for another thread may have the rank leave only after this.
  class Scope {
   public:
    Scope(ShmAgreement& agreement, const Call& call)
        : monitored_(agreement.link_.monitor(), call.name(), call.record()), agreement_(agreement) {
      agreement.segment_ = &agreement.link_.segment();
      agreement.begun_ = agreement.progress_;
      agreement.sequence_ = monitored_.sequence();
    }
    ~Scope() {
      if (agreement_.link_.monitor().has_failed() && monitored_.is_unwound()) return;
      agreement_.link_.completed(agreement_.progress_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const GroupMonitor::Scope monitored_;
    ShmAgreement& agreement_;
  };

  // Posts the call, whose data have these sizes unless it is to be rejected. Fails unless all ranks
  // agree. may_copy: the call can do with data that are copied.
  Protocol agree(const Call& call, size_t send_bytes, size_t receive_bytes, bool may_copy = true);
  // Compares headers, and no more. A rejection of this rank's is the others' too.
  std::optional<Rejection> compare(const Call& call, const std::optional<Rejection>& own);
  // The same in two parts, for data that say by themselves that they have arrived. The flag is that
  // of ranks that agree.
  uint64_t post_flag(const Call& call);
  void agree_on_flag();     // fails unless all agree
  void complete_by_flag();  // without it: all data have arrived
  bool all_attached() const { return all_attached_; }

  // Waits for all: no rank needs this rank's data any more.
  void barrier();

  // Memory and counters of the call in progress.
  char* copied(int rank) const { return segment_->small(rank, calls_); }
  // A rank's data in its arena; null when they are not in one.
  char* sent_by(int rank, const Call& call);
  char* received_by(int rank, const Call& call);

  ShmLink& link() const { return link_; }
  ShmSegment& segment() const { return *segment_; }
  int rank() const { return link_.rank(); }
  int size() const { return link_.size(); }
  // The counter of every rank, where the call has come to; protocols count on from there.
  uint32_t progress() const { return progress_; }
  void advance_to(uint32_t progress) { progress_ = progress; }

 private:
  void post(const Call& call, size_t send_bytes, size_t receive_bytes, bool may_copy);
  void post_rejection(const Call& call, const Rejection& rejection);
  void post_digest();
  std::optional<Rejection> find_rejection();
  Protocol protocol_of(const Call& call) const;

  ShmCallDescriptor& descriptor(int rank) const {
    return segment_->control(rank).descriptors[calls_ % 2];
  }
  std::atomic<uint64_t>& digest_of(int rank) const {
    return segment_->control(rank).progress.digests[calls_ % 2];
  }

  ShmLink& link_;
  const size_t copied_limit_;
  ShmSegment* segment_ = nullptr;
  uint32_t progress_ = 0;
  uint32_t begun_ = 0;     // the progress that the call in progress began with
  uint64_t sequence_ = 0;  // of the call in progress
  size_t calls_ = 0;
  uint64_t digest_ = 0;  // of this rank, in the call in progress
  bool all_attached_ = false;
  SharedWriter writer_;
};

}  // namespace nxd
