#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "core/comm/transports/shm/shm_link.h"

namespace nxd {

// Messages from one rank, which threads wait for by tag. A thread that looks takes all of them out
// of the channel. Each new one wakes the threads that wait at the channel, so that these are few;
// others sleep until one of them has a message of theirs, leaves, or hears that the group has
// failed.
class ShmInbox {
 public:
  static constexpr int kMostAtChannel = 4;

  ShmInbox(ShmLink& link, int from) : link_(link), from_(from) {}
  ShmInbox(const ShmInbox&) = delete;
  ShmInbox& operator=(const ShmInbox&) = delete;

  ShmMessageDescriptor await(int tag);

 private:
  class Unlocked;
  class AtChannel;
  class Sleeper;
  class Place;
  using Lock = std::unique_lock<std::mutex>;

  void empty(ShmChannel& channel);
  std::optional<ShmMessageDescriptor> take(int tag);
  void wait_at_channel(ShmChannel& channel, Lock& lock);
  void sleep(ShmChannel& channel, int tag, Lock& lock);

  ShmLink& link_;
  const int from_;
  std::mutex mutex_;
  uint32_t taken_ = 0;                                        // out of the channel
  std::map<int, std::deque<ShmMessageDescriptor>> messages_;  // of these, by tag
  int at_channel_ = 0;
  std::multimap<int, std::condition_variable*> sleepers_;  // by tag
};

}  // namespace nxd
