#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "core/comm/work.h"

namespace nxd {

// Runs a group's works on threads of the library's own. The works of one lane run one after the
// other, in the order they came in; lanes do not wait for one another. Threads are made when there
// are more busy lanes than threads, serve any lane, and end when they have been idle for a while.
class WorkLanes {
 public:
  // One lane for all collectives, and one for the messages of each peer, tag and direction.
  struct Lane {
    bool for_messages = false;
    bool sends = false;
    int peer = -1, tag = -1;
    auto operator<=>(const Lane&) const = default;
  };

  struct Item {
    std::shared_ptr<Work> work;
    std::function<void()> run;
    std::function<void()> refuse;  // in place of run when the work was cancelled
  };

  WorkLanes() = default;
  ~WorkLanes();  // works must have ended, or be about to
  WorkLanes(const WorkLanes&) = delete;
  WorkLanes& operator=(const WorkLanes&) = delete;

  // OUT_OF_MEMORY when there is no thread to be had. A failure leaves everything as it was.
  void submit(const Lane& lane, Item item);

  // A thread that finds a lane idle sees all writes of its works.
  bool has_pending(bool messages) const noexcept {
    return pending_[messages ? 1 : 0].load(std::memory_order_acquire) != 0;
  }
  bool has_pending(const Lane& lane);
  // Until all works are done. Calls meanwhile() every few milliseconds.
  void wait_until_idle(const std::function<void()>& meanwhile);

 private:
  using Items = std::list<Item>;  // which move from one to the other without memory
  using Threads = std::list<std::thread>;

  void add_thread();
  void run_thread(Threads::iterator self);
  void run_lane(const Lane& lane, std::unique_lock<std::mutex>& lock);

  std::array<std::atomic<size_t>, 2> pending_{};  // collectives, messages

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::map<Lane, Items> lanes_;  // the busy ones; the first item is the one that runs
  std::list<Lane> ready_;        // have no thread yet
  size_t idle_threads_ = 0;      // that will look at ready_ before they end
  size_t finishing_ = 0;         // works that are off their lanes, but not yet done
  bool stop_ = false;
  Threads threads_, ended_;
};

}  // namespace nxd
