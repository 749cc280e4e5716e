#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/monitor/group_monitor.h"
#include "core/comm/transports/shm/shm_segment.h"

namespace nxd {

// The memory that ranks of one host share for a group, and the waits on it. Peers are ranks in the
// group. The memory is made by the first rank that uses it. Any thread.
class ShmLink {
 public:
  // Serves the monitor's group or a part of it; ranks are world ranks, and key names the part.
  ShmLink(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);
  ~ShmLink();
  ShmLink(const ShmLink&) = delete;
  ShmLink& operator=(const ShmLink&) = delete;

  GroupMonitor& monitor() const { return *monitor_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }

  // The memory, which is attached on the first call.
  ShmSegment& segment() {
    ShmSegment* segment = ready_.load(std::memory_order_acquire);
    return segment ? *segment : attach();
  }
  // To be called when all peers have attached.
  void all_attached();

  // Collectives advance one counter per rank, by the same amounts on all ranks.
  void post(uint32_t progress) { own_->progress.advance_to(progress); }
  void wait(int peer, uint32_t progress) {
    SharedCounter& counter = segment_->control(peer).progress;
    if (!counter.has_reached(progress)) wait(peer, counter, progress);
  }
  void wait_for_all(uint32_t progress);
  // Has this rank, should it leave now, leave after the call that ended with this progress.
  void completed(uint32_t progress) { completed_.store(progress, std::memory_order_relaxed); }
  // Fails when a peer has left before it completed the call that began with this progress: it may
  // have taken back its buffers.
  void check_none_left(uint32_t progress);
  // Fails when a peer has left.
  void check_present(int peer) {
    if (segment_->control(peer).departed.load(std::memory_order_acquire) != 0) lost(peer, "left");
  }
  // A wait for a peer's counter, with an end when the peer has come to one.
  void wait(int peer, SharedCounter& counter, uint32_t target);
  // For a wait of another kind for the same: a look that fails when there is no use in waiting on.
  // To be repeated with each beat; GroupMonitor::wait_ended follows the last.
  void poll(int peer, const SharedCounter& counter, uint32_t target);
  static constexpr std::chrono::milliseconds kBeat{20};

  // True if there is a core for each rank that waits.
  bool may_spin() const { return host_->may_spin; }

  Arena& arena() const { return host_->arena; }
  std::shared_ptr<Arena> share_arena() const { return {host_, &host_->arena}; }
  ArenaPlace place_of(const void* data, size_t bytes) const {
    return host_->arena.find(data, bytes);
  }
  // A peer's memory in this process.
  char* address(int peer, const ArenaPlace& place);
  // The same outside of a call; null where it cannot be had.
  char* try_address(int peer, const ArenaPlace& place);

 private:
  // The one thread that attaches. Others wait for it as they do for a peer.
  class Attaching {
   public:
    explicit Attaching(ShmLink& link);
    ~Attaching();
    Attaching(const Attaching&) = delete;
    Attaching& operator=(const Attaching&) = delete;

   private:
    ShmLink& link_;
  };

  ShmSegment& attach();
  SharedMemory create_or_open();
  int another_rank() const;
  SharedMemory open(const std::string& address);
  void say_none(const std::string& key) noexcept;
  void depart() noexcept;
  [[noreturn]] void lost(int peer, const char* how, const char* why = "");
  void check_alive(int peer, const SharedCounter& counter, uint32_t target);
  int world_rank(int peer) const { return ranks_[static_cast<size_t>(peer)]; }

  const std::shared_ptr<GroupMonitor> monitor_;
  const std::shared_ptr<HostShared> host_;
  const std::string key_;
  const std::vector<int> ranks_;
  const int rank_;

  std::mutex attaching_mutex_;
  std::condition_variable attached_;
  bool is_attaching_ = false;
  std::mutex segment_mutex_;  // having attached against abort
  std::unique_ptr<ShmSegment> segment_;
  std::atomic<ShmSegment*> ready_{nullptr};
  ShmControl* own_ = nullptr;
  std::atomic<uint32_t> completed_{0};
};

}  // namespace nxd
