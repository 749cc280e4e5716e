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

// Runs a group's works on threads of the library's own. The works of one queue run one after the
// other, in the order they came in; queues do not wait for one another. Threads are made when there
// are more busy queues than threads, serve any queue, and end when they have been idle for a while.
class WorkQueues {
 public:
  // One queue for all collectives, and one for the messages of each peer, tag and direction.
  struct QueueKey {
    bool for_messages = false;
    bool sends = false;
    int peer = -1, tag = -1;
    auto operator<=>(const QueueKey&) const = default;
  };

  struct Item {
    std::shared_ptr<Work> work;
    std::function<void()> run;
    std::function<void()> cancel;  // in place of run when the work was cancelled
  };

  WorkQueues() = default;
  ~WorkQueues();  // works must have ended, or be about to
  WorkQueues(const WorkQueues&) = delete;
  WorkQueues& operator=(const WorkQueues&) = delete;

  // OUT_OF_MEMORY when there is no thread to be had. A failure leaves everything as it was.
  void submit(const QueueKey& queue, Item item);

  // A thread that finds a queue idle sees all writes of its works.
  bool has_pending(bool messages) const noexcept {
    return pending_[messages ? 1 : 0].load(std::memory_order_acquire) != 0;
  }
  bool has_pending(const QueueKey& queue);
  // Until all works are done. Calls serve() every few milliseconds, and ask() as often as waits ask
  // the interrupt callback.
  void wait_until_idle(const std::function<void()>& serve,
                       const std::function<void()>& ask = nullptr);

 private:
  using Items = std::list<Item>;  // which move from one to the other without memory
  using Threads = std::list<std::thread>;

  void add_thread();
  void run_thread(Threads::iterator self);
  void run_queue(const QueueKey& queue, std::unique_lock<std::mutex>& lock);

  std::array<std::atomic<size_t>, 2> pending_{};  // collectives, messages

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::map<QueueKey, Items> queues_;  // the busy ones; the first item is the one that runs
  std::list<QueueKey> ready_;         // have no thread yet
  size_t idle_threads_ = 0;           // that will look at ready_ before they end
  size_t finishing_ = 0;              // works that are off their queues, but not yet done
  bool stop_ = false;
  Threads threads_, ended_;
};

}  // namespace nxd
