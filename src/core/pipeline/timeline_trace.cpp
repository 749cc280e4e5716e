#include "core/pipeline/timeline_trace.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

namespace nxd {
namespace {

using Event = Timeline::Event;

// What happens on a rank one after the other. Messages of other names are with the last.
constexpr std::array<const char*, 5> kLanes{"tasks", "receive values", "send values",
                                            "receive gradients", "send gradients"};

size_t lane_of(const Event& event) {
  if (event.category != "communication") return 0;
  const auto* const lane = std::find(kLanes.begin() + 1, kLanes.end(), event.name);
  return std::min<size_t>(static_cast<size_t>(lane - kLanes.begin()), kLanes.size() - 1);
}

// Microseconds, exact to the nanosecond.
std::string us(int64_t ns) {
  char out[32];
  std::snprintf(out, sizeof out, "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return out;
}

std::string meta(const char* kind, int pid, size_t tid, const std::string& name) {
  return "{\"ph\":\"M\",\"name\":\"" + std::string(kind) + "\",\"pid\":" + std::to_string(pid) +
         ",\"tid\":" + std::to_string(tid) + ",\"args\":{\"name\":\"" + name + "\"}}";
}

// Names and categories are the library's own: none needs an escape.
std::string complete(const Event& event, int pid, int64_t start_ns) {
  const std::string microbatch = std::to_string(event.microbatch);
  const std::string chunk = std::to_string(event.chunk);
  return "{\"ph\":\"X\",\"name\":\"" + event.name + " mb " + microbatch + " chunk " + chunk +
         "\",\"cat\":\"" + event.category + "\",\"pid\":" + std::to_string(pid) +
         ",\"tid\":" + std::to_string(lane_of(event)) + ",\"ts\":" + us(event.begin_ns - start_ns) +
         ",\"dur\":" + us(event.end_ns - event.begin_ns) +
         ",\"args\":{\"microbatch\":" + microbatch + ",\"chunk\":" + chunk + "}}";
}

}  // namespace

std::string timeline_trace(const std::vector<RankTimeline>& ranks) {
  int64_t start = std::numeric_limits<int64_t>::max();
  for (const RankTimeline& rank : ranks) {
    for (const Event& event : rank.events) start = std::min(start, event.begin_ns);
  }
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  const auto add = [&](const std::string& entry) {
    out += separator + entry;
    separator = ",\n";
  };
  for (const RankTimeline& rank : ranks) {
    add(meta("process_name", rank.rank, 0,
             "pipeline rank " + std::to_string(rank.rank) + " (rank " +
                 std::to_string(rank.world_rank) + ")"));
    for (size_t lane = 0; lane < kLanes.size(); ++lane) {
      add(meta("thread_name", rank.rank, lane, kLanes[lane]));
    }
    for (const Event& event : rank.events) add(complete(event, rank.rank, start));
  }
  return out + "\n]}\n";
}

}  // namespace nxd
