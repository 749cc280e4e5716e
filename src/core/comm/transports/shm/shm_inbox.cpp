#include "core/comm/transports/shm/shm_inbox.h"

#include <algorithm>

#include "core/base/callback_thread.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

// Threads of works are many, and call nobody back.
milliseconds beat_of_sleeper(int64_t timeout_ms) {
  const milliseconds part(timeout_share(timeout_ms, 1, 50));
  return InternalThread::is_current() ? std::clamp(part, ShmLink::kBeat, milliseconds(400))
                                      : ShmLink::kBeat;
}

}  // namespace

class ShmInbox::Unlocked {
 public:
  explicit Unlocked(Lock& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Lock& lock_;
};

// These three begin and end with the lock held.
class ShmInbox::AtChannel {
 public:
  explicit AtChannel(ShmInbox& inbox) : inbox_(inbox) { ++inbox_.at_channel_; }
  ~AtChannel() { --inbox_.at_channel_; }
  AtChannel(const AtChannel&) = delete;
  AtChannel& operator=(const AtChannel&) = delete;

 private:
  ShmInbox& inbox_;
};

class ShmInbox::Sleeper {
 public:
  Sleeper(ShmInbox& inbox, int tag)
      : inbox_(inbox), place_(inbox.sleepers_.emplace(tag, &called)) {}
  ~Sleeper() { inbox_.sleepers_.erase(place_); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  std::condition_variable called;

 private:
  ShmInbox& inbox_;
  const std::multimap<int, std::condition_variable*>::iterator place_;
};

// However a thread's wait ends, another one may go to the channel in its place. All hear of a
// failure.
class ShmInbox::Place {
 public:
  explicit Place(ShmInbox& inbox) : inbox_(inbox) {}
  ~Place() {
    const bool has_failed = inbox_.link_.monitor().has_failed();
    if (!has_failed && inbox_.at_channel_ == kMostAtChannel) return;
    for (const auto& [tag, called] : inbox_.sleepers_) {
      called->notify_one();
      if (!has_failed) return;
    }
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  ShmInbox& inbox_;
};

void ShmInbox::empty(ShmChannel& channel) {
  while (channel.posted.has_reached(taken_ + 1)) {
    const ShmMessageDescriptor& next = channel.messages[taken_ % ShmChannel::kMessages];
    messages_[next.tag].push_back(next);
    const auto [first, last] = sleepers_.equal_range(next.tag);
    for (auto sleeper = first; sleeper != last; ++sleeper) sleeper->second->notify_one();
    channel.taken.advance_to(++taken_);
  }
}

std::optional<ShmMessageDescriptor> ShmInbox::take(int tag) {
  const auto found = messages_.find(tag);
  if (found == messages_.end()) return std::nullopt;
  const ShmMessageDescriptor message = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
  return message;
}

void ShmInbox::wait_at_channel(ShmChannel& channel, Lock& lock) {
  const uint32_t next = taken_ + 1;
  const AtChannel counted(*this);
  const Unlocked unlocked(lock);
  link_.wait(from_, channel.posted, next);
}

// Threads at the channel may all be in the interrupt callback for long: so this one looks after
// everything itself too, but seldom.
void ShmInbox::sleep(ShmChannel& channel, int tag, Lock& lock) {
  const milliseconds beat = beat_of_sleeper(link_.monitor().timeout_ms());
  Sleeper sleeper(*this, tag);
  const auto may_go_on = [&] {
    empty(channel);
    return messages_.count(tag) != 0 || at_channel_ < kMostAtChannel;
  };
  while (!may_go_on()) {
    sleeper.called.wait_for(lock, beat);
    if (may_go_on()) break;
    const uint32_t next = taken_ + 1;
    const Unlocked unlocked(lock);
    link_.poll(from_, channel.posted, next);
  }
  const Unlocked unlocked(lock);
  link_.monitor().wait_ended();
}

ShmMessageDescriptor ShmInbox::await(int tag) {
  ShmChannel& channel = link_.segment().channel(from_, link_.rank());
  Lock lock(mutex_);
  const Place place(*this);
  for (;;) {
    empty(channel);
    if (const auto message = take(tag)) return *message;
    if (at_channel_ < kMostAtChannel) {
      wait_at_channel(channel, lock);
    } else {
      sleep(channel, tag, lock);
    }
  }
}

}  // namespace nxd
