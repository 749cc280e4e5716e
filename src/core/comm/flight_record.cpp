#include "core/comm/flight_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/dtype.h"
#include "core/comm/socket.h"

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

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

// Fields are stored with release and loaded with acquire: who sees a field of a write also sees
// that write's odd version.
FlightRecord::Ticket FlightRecord::begin(const Operation& operation) noexcept {
  const Ticket ticket = next_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entry_of(ticket);
  const uint64_t own = version_of(ticket);
  uint64_t seen = entry.version.load(std::memory_order_relaxed);
  for (;;) {
    if (seen > own) return ticket;  // a round behind: the entry belongs to a later operation
    if (seen % 2 == 0 &&
        entry.version.compare_exchange_weak(seen, own + 1, std::memory_order_acquire)) {
      break;
    }
    if (seen % 2 != 0) seen = entry.version.load(std::memory_order_relaxed);
  }
  constexpr auto order = std::memory_order_release;
  uint64_t name[3];
  std::memcpy(name, operation.name, sizeof name);
  for (size_t i = 0; i < entry.name.size(); ++i) entry.name[i].store(name[i], order);
  entry.sequence.store(operation.sequence, order);
  entry.count.store(operation.count, order);
  entry.start_ns.store(operation.start_ns, order);
  entry.packed.store(pack(operation, State::kStarted), order);
  entry.awaited.store(-1, order);
  entry.version.store(own, order);
  return ticket;
}

bool FlightRecord::reopen(Ticket ticket) noexcept {
  uint64_t expected = version_of(ticket);
  return entry_of(ticket).version.compare_exchange_strong(expected, expected + 1,
                                                          std::memory_order_acquire);
}

void FlightRecord::await(Ticket ticket, int rank) noexcept {
  if (entry_of(ticket).awaited.load(std::memory_order_relaxed) == rank || !reopen(ticket)) return;
  Entry& entry = entry_of(ticket);
  entry.awaited.store(rank, std::memory_order_release);
  entry.version.store(version_of(ticket), std::memory_order_release);
}

void FlightRecord::end(Ticket ticket, State state, int64_t duration_ns) noexcept {
  if (!reopen(ticket)) return;
  Entry& entry = entry_of(ticket);
  const uint64_t packed = entry.packed.load(std::memory_order_relaxed);
  entry.packed.store(
      (packed & ~(uint64_t{0xff} << 32)) | uint64_t{static_cast<uint8_t>(state)} << 32,
      std::memory_order_release);
  entry.duration_ns.store(duration_ns, std::memory_order_release);
  entry.version.store(version_of(ticket), std::memory_order_release);
}

std::vector<FlightRecord::Operation> FlightRecord::snapshot() const {
  std::vector<Operation> out;
  const Ticket end = next_.load(std::memory_order_relaxed);
  for (Ticket ticket = end > kEntries ? end - kEntries : 0; ticket < end; ++ticket) {
    const Entry& entry = entries_[ticket % kEntries];
    constexpr auto order = std::memory_order_acquire;
    // Writes are short and rare against reads; a few attempts see one that is whole.
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (entry.version.load(order) != version_of(ticket)) continue;
      Operation o;
      uint64_t name[3];
      for (size_t i = 0; i < entry.name.size(); ++i) name[i] = entry.name[i].load(order);
      std::memcpy(o.name, name, sizeof o.name);
      o.sequence = entry.sequence.load(order);
      o.count = entry.count.load(order);
      o.start_ns = entry.start_ns.load(order);
      o.duration_ns = entry.duration_ns.load(order);
      o.awaited = entry.awaited.load(order);
      unpack(entry.packed.load(order), o);
      if (entry.version.load(std::memory_order_relaxed) != version_of(ticket)) continue;
      out.push_back(o);
      break;
    }
  }
  return out;
}

std::string flight_json(int world_rank, int64_t now_ns, const std::vector<GroupRecord>& groups) {
  using Json = nlohmann::ordered_json;
  Json out = {{"rank", world_rank}, {"time_us", microseconds(now_ns)}, {"groups", Json::array()}};
  for (const GroupRecord& group : groups) {
    Json operations = Json::array();
    for (const FlightRecord::Operation& o : group.operations) {
      const bool over = o.state != FlightRecord::State::kStarted;
      Json operation = {{"sequence", o.sequence},
                        {"kind", o.is_message ? "message" : "collective"},
                        {"operation", o.name},
                        {"state", state_name(o.state)},
                        {"start_us", microseconds(o.start_ns)},
                        {"duration_us", microseconds(over ? o.duration_ns : now_ns - o.start_ns)}};
      if (o.dtype != NXD_DTYPE_INVALID) {
        operation["dtype"] = dtype_name(o.dtype);
        operation["count"] = o.count;
      }
      if (o.peer >= 0 && static_cast<size_t>(o.peer) < group.ranks.size()) {
        operation["peer"] = group.ranks[static_cast<size_t>(o.peer)];
      }
      if (o.state != FlightRecord::State::kDone && o.awaited >= 0) {
        operation["awaited"] = o.awaited;
      }
      operations.push_back(std::move(operation));
    }
    Json entry = {{"name", group.name}, {"key", group.key}, {"ranks", group.ranks}};
    if (!group.error.empty()) entry["error"] = group.error;
    entry["operations"] = std::move(operations);
    out["groups"].push_back(std::move(entry));
  }
  // Names are the caller's, and may be no UTF-8.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_flight_json(const std::string& path, std::string line) {
  line += '\n';
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const bool whole =
      file && ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!whole) fail(NXD_ERROR_IO, "cannot write to ", path, ": ", std::strerror(errno));
}

}  // namespace nxd
