#include "core/comm/work_queues.h"

#include "core/base/callback_thread.h"
#include "core/base/start_thread.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kIdleLimit(2000);

}  // namespace

WorkQueues::~WorkQueues() {
  std::unique_lock<std::mutex> lock(mutex_);
  stop_ = true;
  wake_.notify_all();
  idle_.wait(lock, [this] { return threads_.empty(); });
  for (std::thread& thread : ended_) thread.join();
}

// The thread waits for the lock before it looks at anything, so also for its place in the list.
void WorkQueues::add_thread() {
  Threads added(1);
  const auto self = added.begin();
  *self = start_thread("for asynchronous work", [this, self] { run_thread(self); });
  threads_.splice(threads_.end(), added);
  ++idle_threads_;
}

void WorkQueues::submit(const QueueKey& queue, Item item) {
  // All memory is taken before anything changes.
  Items items;
  items.push_back(std::move(item));
  std::list<QueueKey> ready(1, queue);
  std::lock_guard<std::mutex> lock(mutex_);
  // A thread in this list has nothing left to do but to end.
  for (std::thread& thread : ended_) thread.join();
  ended_.clear();
  const auto [place, is_new] = queues_.try_emplace(queue);
  if (is_new) {
    try {
      if (idle_threads_ <= ready_.size()) add_thread();
    } catch (...) {
      queues_.erase(place);
      throw;
    }
    ready_.splice(ready_.end(), ready);
    wake_.notify_one();
  }
  place->second.splice(place->second.end(), items);
  pending_[queue.for_messages ? 1 : 0].fetch_add(1, std::memory_order_relaxed);
}

bool WorkQueues::has_pending(const QueueKey& queue) {
  std::lock_guard<std::mutex> lock(mutex_);
  return queues_.count(queue) != 0;
}

void WorkQueues::wait_until_idle(const std::function<void()>& serve,
                                 const std::function<void()>& ask) {
  const auto is_idle = [this] { return queues_.empty() && finishing_ == 0; };
  auto next_question = Deadline::Clock::now() + Interrupt::kBeat;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!idle_.wait_for(lock, milliseconds(2), is_idle)) {
    lock.unlock();
    serve();
    if (const auto now = Deadline::Clock::now(); ask && now >= next_question) {
      ask();
      next_question = now + Interrupt::kBeat;
    }
    lock.lock();
  }
}

void WorkQueues::run_thread(Threads::iterator self) {
  const InternalThread internal;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_cause = [this] { return stop_ || !ready_.empty(); };
  while (wake_.wait_for(lock, kIdleLimit, has_cause) && !ready_.empty()) {
    const QueueKey queue = ready_.front();
    ready_.pop_front();
    --idle_threads_;
    run_queue(queue, lock);
  }
  --idle_threads_;
  ended_.splice(ended_.end(), threads_, self);
  idle_.notify_all();
}

// Ends with the thread counted as idle. A work is off its queue before its caller learns of its
// end, so that a call that comes next finds the queue free.
void WorkQueues::run_queue(const QueueKey& queue, std::unique_lock<std::mutex>& lock) {
  Items& items = queues_.at(queue);
  for (bool more = !items.empty(); more;) {
    Item& current = items.front();  // stays in place: items are only added at the end
    lock.unlock();
    std::optional<Error> error;
    try {
      const WaitClockScope waited_for(current.work->wait_clock());
      current.work->begin() ? current.run() : current.cancel();
    } catch (...) {
      error = Error::current();
    }
    lock.lock();
    Items ended;
    ended.splice(ended.end(), items, items.begin());
    more = !items.empty();
    if (!more) {
      queues_.erase(queue);
      ++idle_threads_;
    }
    ++finishing_;
    pending_[queue.for_messages ? 1 : 0].fetch_sub(1, std::memory_order_release);
    lock.unlock();
    ended.front().work->finish(error);
    ended.clear();
    lock.lock();
    --finishing_;
    if (!more) idle_.notify_all();
  }
}

}  // namespace nxd
