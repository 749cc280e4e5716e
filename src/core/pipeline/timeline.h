#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nxd {

// Events of a rank in a pipeline. Times are nanoseconds of the monotonic clock; ranks of
// several hosts are aligned when their records are put together.
class Timeline {
 public:
  struct Event {
    std::string name;      // such as "forward", "send values", "wait"
    std::string category;  // "compute", "communication" or "wait"
    int chunk = 0, microbatch = -1;
    int64_t begin_ns = 0, end_ns = 0;
  };

  void add(Event event) { events_.push_back(std::move(event)); }
  const std::vector<Event>& events() const { return events_; }
  void clear() { events_.clear(); }

 private:
  std::vector<Event> events_;
};

// The record of one rank among those of a pipeline, by one clock.
struct RankTimeline {
  int rank = 0;  // of the pipeline
  int world_rank = 0;
  std::vector<Timeline::Event> events;
};

}  // namespace nxd
