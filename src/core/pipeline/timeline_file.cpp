#include "core/pipeline/timeline_file.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/agree/agree.h"
#include "core/base/exchange_record.h"
#include "core/base/hash.h"
#include "core/base/proc_file.h"
#include "core/checkpoint/file.h"
#include "core/comm/net/deadline.h"
#include "core/pipeline/timeline_trace.h"

namespace nxd {
namespace {

constexpr int kTimelineTag = kTagLimit - 2;  // next to those of the pipeline's own messages
constexpr int kPings = 16;

// The first message of every rank of the world about itself.
struct Card {
  int64_t part = -1;  // rank in the pipeline of rank 0; -1: in another
  int64_t bytes = 0;  // of its record
  int64_t events = 0;
  int64_t clock = 0;  // the same for ranks that share a monotonic clock
};
constexpr size_t kCardWords = sizeof(Card) / sizeof(int64_t);

void check_path(const char* path) {
  check_argument(path, "path: expected a path, got NULL");
  check_argument(std::string_view(path).ends_with(".json"),
                 "path: expected a name that ends in .json, got ", path);
}

// The kernel's, by its boot.
int64_t own_clock() {
  const std::string id = read_proc("/proc/sys/kernel/random/boot_id").value_or("");
  return static_cast<int64_t>(Hash().add(id).value());
}

std::string encode(const std::vector<Timeline::Event>& events) {
  RecordWriter out;
  for (const Timeline::Event& e : events) {
    out.string(e.name);
    out.string(e.category);
    for (const int64_t value : {int64_t{e.chunk}, int64_t{e.microbatch}, e.begin_ns, e.end_ns}) {
      out.number(value);
    }
  }
  return out.take();
}

// Times that are behind the reader's clock by so much.
std::vector<Timeline::Event> decode(const std::string& bytes, int64_t offset_ns) {
  std::vector<Timeline::Event> events;
  for (RecordReader in(bytes); !in.done();) {
    Timeline::Event event;
    event.name = in.string();
    event.category = in.string();
    event.chunk = static_cast<int>(in.number());
    event.microbatch = static_cast<int>(in.number());
    event.begin_ns = in.number() + offset_ns;
    event.end_ns = in.number() + offset_ns;
    events.push_back(std::move(event));
  }
  return events;
}

// The difference to add to a peer's clock. The quickest answer has the least to be wrong by: half
// of the time that it took.
int64_t measure_offset(ProcessGroup& world, int peer) {
  int64_t best = std::numeric_limits<int64_t>::max(), offset = 0;
  for (int i = 0; i < kPings; ++i) {
    int64_t there = 0;
    const int64_t before = monotonic_ns();
    world.run(Call::send_to(&before, 1, NXD_DTYPE_I64, peer, kTimelineTag));
    world.run(Call::receive_from(&there, 1, NXD_DTYPE_I64, peer, kTimelineTag));
    const int64_t after = monotonic_ns();
    if (after - before >= best) continue;
    best = after - before;
    offset = before + best / 2 - there;
  }
  return offset;
}

void answer_pings(ProcessGroup& world) {
  for (int i = 0; i < kPings; ++i) {
    int64_t ping = 0;
    world.run(Call::receive_from(&ping, 1, NXD_DTYPE_I64, 0, kTimelineTag));
    ping = monotonic_ns();
    world.run(Call::send_to(&ping, 1, NXD_DTYPE_I64, 0, kTimelineTag));
  }
}

std::vector<RankTimeline> collect(ProcessGroup& world, const std::vector<Card>& cards,
                                  const std::vector<Timeline::Event>& own) {
  std::vector<RankTimeline> ranks;
  for (int peer = 0; peer < world.size(); ++peer) {
    const Card& card = cards[static_cast<size_t>(peer)];
    if (card.part < 0) continue;
    RankTimeline of_peer{static_cast<int>(card.part), peer, own};
    if (peer != 0) {
      const int64_t offset = card.clock == cards[0].clock ? 0 : measure_offset(world, peer);
      std::string text(static_cast<size_t>(card.bytes), '\0');
      world.run(Call::receive_from(text.data(), text.size(), NXD_DTYPE_U8, peer, kTimelineTag));
      of_peer.events = decode(text, offset);
    }
    ranks.push_back(std::move(of_peer));
  }
  return ranks;
}

}  // namespace

void write_timeline(ProcessGroup& world, const ProcessGroup& pipeline, const Timeline* own,
                    const char* path) {
  static const std::vector<Timeline::Event> kNone;
  const auto& events = own ? own->events() : kNone;
  agree({&world}, Proposal(world.rank()).attempt([&] { check_path(path); }));
  std::string record;
  Card card;
  if (pipeline.ranks().front() == 0) {
    record = encode(events);
    card = {pipeline.rank(), static_cast<int64_t>(record.size()),
            static_cast<int64_t>(events.size()), own_clock()};
  }
  std::vector<Card> cards(static_cast<size_t>(world.size()));
  world.run(Call::all_gather(&card, cards.data(), kCardWords, NXD_DTYPE_I64));

  int64_t recorded = 0;
  for (const Card& other : cards) recorded += other.events;
  check_state(recorded > 0,
              "the pipeline's ranks have recorded nothing: call nxd_pp_set_timeline "
              "before a run");
  Outcome outcome;
  if (world.rank() == 0) {
    const std::vector<RankTimeline> ranks = collect(world, cards, events);
    outcome = Outcome::of(0, [&] {
      const std::string text = timeline_trace(ranks);
      AtomicFile file(path);
      file.write(text.data(), text.size());
      file.commit();
    });
  } else if (card.part >= 0) {
    if (card.clock != cards[0].clock) answer_pings(world);
    world.run(Call::send_to(record.data(), record.size(), NXD_DTYPE_U8, 0, kTimelineTag));
  }
  outcome.share(world);
  outcome.check(" could not write: ");
}

}  // namespace nxd
