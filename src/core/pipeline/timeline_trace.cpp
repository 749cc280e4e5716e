#include "core/pipeline/timeline_trace.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/base/error.h"
#include "core/base/json_writer.h"

namespace nxd {
namespace {

using Event = Timeline::Event;

// Events of one track happen one after the other. Messages of other names are in the last track.
constexpr std::array<const char*, 5> kTracks{"tasks", "receive values", "send values",
                                             "receive gradients", "send gradients"};

size_t track_of(const Event& event) {
  if (event.category != "communication") return 0;
  const auto* const track = std::find(kTracks.begin() + 1, kTracks.end(), event.name);
  return std::min<size_t>(static_cast<size_t>(track - kTracks.begin()), kTracks.size() - 1);
}

// The head of an event of the format; its own members follow.
void begin_event(JsonWriter& out, const char* phase, const std::string& name, int pid, size_t tid) {
  out.begin_object();
  out.key("ph");
  out.string(phase);
  out.key("name");
  out.string(name);
  out.key("pid");
  out.number(pid);
  out.key("tid");
  out.natural(tid);
}

void write_name(JsonWriter& out, const char* kind, int pid, size_t tid, const std::string& name) {
  begin_event(out, "M", kind, pid, tid);
  out.key("args");
  out.begin_object();
  out.key("name");
  out.string(name);
  out.end_object();
  out.end_object();
}

void write_event(JsonWriter& out, const Event& event, int pid, int64_t start_ns) {
  begin_event(out, "X", text(event.name, " mb ", event.microbatch, " chunk ", event.chunk), pid,
              track_of(event));
  out.key("cat");
  out.string(event.category);
  out.key("ts");  // microseconds
  out.thousandths(event.begin_ns - start_ns);
  out.key("dur");
  out.thousandths(event.end_ns - event.begin_ns);
  out.key("args");
  out.begin_object();
  out.key("task");
  out.string(event.name);
  out.key("microbatch");
  out.number(event.microbatch);
  out.key("chunk");
  out.number(event.chunk);
  out.end_object();
  out.end_object();
}

}  // namespace

std::string timeline_trace(const std::vector<RankTimeline>& ranks) {
  int64_t start = std::numeric_limits<int64_t>::max();
  for (const RankTimeline& rank : ranks) {
    for (const Event& event : rank.events) start = std::min(start, event.begin_ns);
  }
  JsonWriter out;
  out.begin_object();
  out.key("displayTimeUnit");
  out.string("ms");
  out.key("traceEvents");
  out.begin_array();
  for (const RankTimeline& rank : ranks) {
    write_name(out, "process_name", rank.rank, 0,
               text("pipeline rank ", rank.rank, " (rank ", rank.world_rank, ")"));
    for (size_t track = 0; track < kTracks.size(); ++track) {
      write_name(out, "thread_name", rank.rank, track, kTracks[track]);
    }
    for (const Event& event : rank.events) write_event(out, event, rank.rank, start);
  }
  out.end_array();
  out.end_object();
  return out.take();
}

}  // namespace nxd
