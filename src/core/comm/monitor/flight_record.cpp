#include "core/comm/monitor/flight_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "core/base/blocked_signals.h"
#include "core/base/dtype.h"
#include "core/base/json_writer.h"
#include "core/base/regular_file.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {

uint64_t pack(const FlightRecord::Operation& o, FlightRecord::State state) {
  return uint64_t{static_cast<uint32_t>(o.peer)} | uint64_t{static_cast<uint8_t>(state)} << 32 |
         uint64_t{static_cast<uint8_t>(o.dtype)} << 40 | uint64_t{o.is_message} << 48;
}

void unpack(uint64_t packed, FlightRecord::Operation& o) {
  o.peer = static_cast<int>(static_cast<uint32_t>(packed));
  o.state = static_cast<FlightRecord::State>(packed >> 32 & 0xff);
  o.dtype = static_cast<int8_t>(packed >> 40 & 0xff);
  o.is_message = (packed >> 48 & 1) != 0;
}

const char* state_name(FlightRecord::State state) {
  switch (state) {
    case FlightRecord::State::kStarted: return "started";
    case FlightRecord::State::kDone: return "done";
    default: return "failed";
  }
}

void write_ranks(JsonWriter& out, const std::vector<int>& ranks) {
  out.begin_array();
  for (const int rank : ranks) out.number(rank);
  out.end_array();
}

void write_operation(JsonWriter& out, const FlightRecord::Operation& o,
                     const std::vector<int>& ranks, int64_t now_ns) {
  const auto text = [&](const char* key, const char* value) {
    out.key(key);
    out.string(value);
  };
  const auto number = [&](const char* key, int64_t value) {
    out.key(key);
    out.number(value);
  };
  const bool over = o.state != FlightRecord::State::kStarted;
  out.begin_object();
  out.key("sequence");
  out.natural(o.sequence);
  text("kind", o.is_message ? "message" : "collective");
  text("operation", o.name);
  text("state", state_name(o.state));
  out.key("start_us");
  out.thousandths(o.start_ns);
  out.key("duration_us");
  out.thousandths(over ? o.duration_ns : now_ns - o.start_ns);
  if (o.dtype != NXD_DTYPE_INVALID) {
    text("dtype", dtype_name(o.dtype));
    out.key("count");
    out.natural(o.count);
  }
  if (o.peer >= 0 && static_cast<size_t>(o.peer) < ranks.size()) {
    number("peer", ranks[static_cast<size_t>(o.peer)]);
  }
  if (o.state != FlightRecord::State::kDone && o.awaited >= 0) number("awaited", o.awaited);
  out.end_object();
}

}  // namespace

// Fields are stored with release and loaded with acquire: a reader that sees a field of a write
// also sees that write's odd version.
void FlightRecord::Entry::write(const Operation& operation) noexcept {
  constexpr auto order = std::memory_order_release;
  uint64_t words[3];
  std::memcpy(words, operation.name, sizeof words);
  for (size_t i = 0; i < name.size(); ++i) name[i].store(words[i], order);
  sequence.store(operation.sequence, order);
  count.store(operation.count, order);
  start_ns.store(operation.start_ns, order);
  packed.store(pack(operation, State::kStarted), order);
  awaited.store(-1, order);
}

bool FlightRecord::Entry::read(uint64_t expected, Operation& out) const noexcept {
  constexpr auto order = std::memory_order_acquire;
  if (version.load(order) != expected) return false;
  uint64_t words[3];
  for (size_t i = 0; i < name.size(); ++i) words[i] = name[i].load(order);
  std::memcpy(out.name, words, sizeof out.name);
  out.sequence = sequence.load(order);
  out.count = count.load(order);
  out.start_ns = start_ns.load(order);
  out.duration_ns = duration_ns.load(order);
  out.awaited = awaited.load(order);
  unpack(packed.load(order), out);
  return version.load(std::memory_order_relaxed) == expected;
}

FlightRecord::Ticket FlightRecord::begin(const Operation& operation) noexcept {
  if (operation.is_message) return begin_message(operation);
  // No instruction that locks: together they would cost a tenth of a small collective.
  Ring& ring = rings_[0];
  const uint64_t number = ring.next.load(std::memory_order_relaxed);
  ring.next.store(number + 1, std::memory_order_relaxed);
  Entry& entry = ring[number];
  entry.version.store(version_of(number) + 1, std::memory_order_relaxed);
  entry.write(operation);
  entry.version.store(version_of(number), std::memory_order_release);
  return {number, false};
}

FlightRecord::Ticket FlightRecord::begin_message(const Operation& operation) noexcept {
  const uint64_t number = rings_[1].next.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = rings_[1][number];
  const uint64_t own = version_of(number);
  uint64_t seen = entry.version.load(std::memory_order_relaxed);
  for (;;) {
    if (seen > own) return {number, true};  // a round behind: a later operation has the entry
    if (seen % 2 == 0 &&
        entry.version.compare_exchange_weak(seen, own + 1, std::memory_order_acquire)) {
      break;
    }
    if (seen % 2 != 0) seen = entry.version.load(std::memory_order_relaxed);
  }
  entry.write(operation);
  entry.version.store(own, std::memory_order_release);
  return {number, true};
}

bool FlightRecord::reopen(Ticket ticket) noexcept {
  std::atomic<uint64_t>& version = entry_of(ticket).version;
  uint64_t expected = version_of(ticket.number);
  if (ticket.is_message) {
    return version.compare_exchange_strong(expected, expected + 1, std::memory_order_acquire);
  }
  if (version.load(std::memory_order_relaxed) != expected) return false;
  version.store(expected + 1, std::memory_order_relaxed);
  return true;
}

void FlightRecord::await(Ticket ticket, int rank) noexcept {
  if (entry_of(ticket).awaited.load(std::memory_order_relaxed) == rank || !reopen(ticket)) return;
  Entry& entry = entry_of(ticket);
  entry.awaited.store(rank, std::memory_order_release);
  entry.version.store(version_of(ticket.number), std::memory_order_release);
}

void FlightRecord::end(Ticket ticket, State state, int64_t duration_ns) noexcept {
  if (!reopen(ticket)) return;
  Entry& entry = entry_of(ticket);
  const uint64_t packed = entry.packed.load(std::memory_order_relaxed);
  entry.packed.store(
      (packed & ~(uint64_t{0xff} << 32)) | uint64_t{static_cast<uint8_t>(state)} << 32,
      std::memory_order_release);
  entry.duration_ns.store(duration_ns, std::memory_order_release);
  entry.version.store(version_of(ticket.number), std::memory_order_release);
}

void FlightRecord::Ring::add_to(std::vector<Operation>& operations) const {
  const uint64_t end = next.load(std::memory_order_relaxed);
  for (uint64_t number = end > kEntries ? end - kEntries : 0; number < end; ++number) {
    const Entry& entry = entries[number % kEntries];
    // Writes are short and rare against reads; a few attempts see one that is whole.
    Operation operation;
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (!entry.read(version_of(number), operation)) continue;
      operations.push_back(operation);
      break;
    }
  }
}

std::vector<FlightRecord::Operation> FlightRecord::snapshot() const {
  std::vector<Operation> out;
  for (const Ring& ring : rings_) ring.add_to(out);
  std::stable_sort(out.begin(), out.end(),
                   [](const Operation& a, const Operation& b) { return a.start_ns < b.start_ns; });
  return out;
}

std::string flight_json(int world_rank, int64_t now_ns, const std::vector<GroupRecord>& groups) {
  JsonWriter out;
  out.begin_object();
  out.key("rank");
  out.number(world_rank);
  out.key("time_us");
  out.thousandths(now_ns);
  out.key("groups");
  out.begin_array();
  for (const GroupRecord& group : groups) {
    out.begin_object();
    out.key("name");
    out.string(group.name);
    out.key("key");
    out.string(group.key);
    out.key("ranks");
    write_ranks(out, group.ranks);
    if (!group.error.empty()) {
      out.key("error");
      out.string(group.error);
    }
    out.key("operations");
    out.begin_array();
    for (const FlightRecord::Operation& o : group.operations) {
      write_operation(out, o, group.ranks, now_ns);
    }
    out.end_array();
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.take();
}

namespace {

// Removes the part of a line that a full disk has taken: the next line would follow it. The
// part stays where another line has come behind it meanwhile.
void take_back(int fd, off_t begin, size_t size) {
  struct stat status = {};
  const auto end = begin + static_cast<off_t>(size);
  if (::fstat(fd, &status) != 0 || status.st_size != end) return;
  static_cast<void>(::ftruncate(fd, begin));
}

// The bytes that were written; errno says why these are not all.
size_t write_all(int fd, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace

void append_flight_json(const std::string& path, std::string line) {
  line += '\n';
  // The open of a FIFO would wait for a reader.
  constexpr int kHow = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const Fd file(::open(path.c_str(), kHow, 0644));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0)
    fail(NXD_ERROR_IO, "cannot write to ", path, ": ", std::strerror(errno));
  check_regular_file("cannot write to " + path, status.st_mode);
  const HeldSignal no_sigxfsz(SIGXFSZ);
  const size_t done = write_all(file.get(), line);
  if (done == line.size()) return;
  const int code = errno;
  take_back(file.get(), status.st_size, done);
  fail(NXD_ERROR_IO, "cannot write to ", path, ": ", std::strerror(code));
}

}  // namespace nxd
