#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/monitor/blocked_callers.h"
#include "core/comm/net/deadline.h"
#include "core/comm/store/store.h"

namespace nxd {

// A rank that was lost, and why.
struct Loss {
  nxd_status_t status;  // PEER_LOST or TIMEOUT
  int rank;             // world rank
  std::string reason;
};

// Registry of the failures of a world's ranks. The first rank that detects a loss publishes it in
// the store, and all others take it from there. So every error names the rank that was lost first,
// and not a survivor that gave up because of it. When the store has gone as well, each rank goes by
// what it sees itself.
//
// A rank that has been waiting for long publishes the rank that it waits for. When waits time out,
// these edges lead to the rank that waits for no other: the one to blame.
//
// A rank that rejects a call waits for its peers to come to it. They may have needed nothing of it
// there, and wait for it in another call. So while some rank has rejected a call, ranks that wait
// as a whole publish whom they wait for, again and again, and the edges show it that it waits for
// itself.
//
// Methods that ask the store run on the caller's thread, and never throw.
class FailureRegistry {
 public:
  // The part of a world's store that registries keep.
  static constexpr const char* kPrefix = "failures/";

  // server_rank is the rank whose process serves the store, -1 when none does. lost_with_store is
  // the rank to blame when the store is silent: the same, or one of the host that serves it. No
  // request to the store takes longer than timeout_ms.
  FailureRegistry(std::shared_ptr<Store> store, int rank, int world_size, int server_rank,
                  int lost_with_store, int64_t timeout_ms = kNeverMs);

  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  std::optional<Loss> loss() const;

  // Asks the store whether a loss was published.
  void poll() noexcept;
  // The world's store failed with this status elsewhere. Unless a loss was published that tells
  // more, the rank that serves the store is lost.
  void store_failed(nxd_status_t status) noexcept;
  // Publishes a loss, or takes over the one published before. A rank that was lost to others only
  // after it had reported a loss itself, gives way to that one. When the store is silent, the loss
  // is that of the rank that goes with it: peers that give up because of it close their connections
  // too, and cannot say why.
  void report(Loss loss) noexcept;
  // On the rank that serves the store, once a loss is known: waits until the other ranks have heard
  // of it, or until then. The program may end as soon as it is told of the loss, and the store ends
  // with it. Returns at once on the other ranks, and the second time.
  void outlast_loss(Deadline until) noexcept;

  // The waiter tells the waits of several threads apart; of these, one is published.
  void publish_wait(const void* waiter, int awaited) noexcept;
  void clear_wait(const void* waiter) noexcept;
  // The rank that all waits lead to from an awaited one. It is certain when the awaited rank itself
  // waits for nobody or for this rank; otherwise a rank nearer to it is going to report it.
  struct Culprit {
    int rank;
    bool certain;
  };
  Culprit find_culprit(int awaited) noexcept;

  // Counts this rank among those that wait in a call that they have rejected.
  void begin_rejection() noexcept;
  void end_rejection() noexcept;
  bool has_rejections() noexcept;
  // The waits of this rank as a whole.
  void publish_waits(const BlockedCallers::Waits& waits) noexcept;
  // Ranks that wait as a whole, this one among them, for nobody but each other.
  struct Circle {
    std::string waits;               // the same as long as none of them has ended
    std::map<int, uint64_t> rounds;  // by rank, as of BlockedCallers::Waits

    // The waits were all there still when each rank looked after this one was found.
    bool is_confirmed_by(const Circle& later) const;
  };
  // The ranks that the waits of an awaited one lead to, if they are such.
  std::optional<Circle> find_circle(int awaited) noexcept;

  // Publishes that this rank is lost to the others, on purpose. It does not count as a loss here.
  void announce_abort() noexcept;
  // Publishes that this rank has left: the world, once, or one group of it, by its key. A rank
  // may leave while others still talk to one another, so it is a loss only to those that wait for
  // it.
  void leave() noexcept;
  void leave_group(const std::string& key) noexcept;
  bool has_left(int rank, const std::string& group_key) noexcept;
  // As leave, for a rank that gave up before it had a registry. Throws what the store throws.
  static void leave_before_joining(Store& world, int rank);

  // Stops asking the store.
  void detach() noexcept;

 private:
  void remember(Loss loss);
  void take_over(const std::string& published);
  void publish(const Loss& loss);
  Loss first_cause(Loss loss);
  int listeners_to(int lost) const;
  void count_as_hearer(int lost);
  std::optional<int> awaited_by(int rank);
  std::optional<BlockedCallers::Waits> waits_of(int rank);
  bool serves_elsewhere() const { return server_rank_ >= 0 && server_rank_ != rank_; }
  bool may_be_silent() const { return lost_with_store_ >= 0 && lost_with_store_ != rank_; }
  Loss silent_store() const;
  template <class Function>
  void ask(Function&& function) noexcept;

  const std::shared_ptr<Store> store_;
  const int rank_, world_size_;
  const int server_rank_;
  const int lost_with_store_;
  const int64_t timeout_ms_;
  std::atomic<bool> lost_{false};
  std::atomic<bool> left_{false};
  std::atomic<bool> attached_{true};
  std::atomic<bool> silent_{false};  // the store did not answer, and a rank is lost with it
  std::atomic<bool> outlasted_{false};
  std::atomic<bool> unreadable_{false};  // the published loss; said once
  mutable std::mutex mutex_;
  std::optional<Loss> loss_;
  std::mutex waits_mutex_;                          // held while the store is told
  std::vector<std::pair<const void*, int>> waits_;  // the first is the published one
};

}  // namespace nxd
