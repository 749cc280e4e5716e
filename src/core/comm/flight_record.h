#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// The last operations of a group, for the question what everybody was doing when it stopped. Those
// who run operations write without locks or allocation; any thread may read at any time.
class FlightRecord {
 public:
  static constexpr size_t kEntries = 64;

  enum class State : uint8_t { kStarted, kDone, kFailed };

  struct Operation {
    char name[24] = "";  // a copy, cut to fit: callers' names need not last
    uint64_t sequence = 0;
    bool is_message = false;  // numbered apart from the collectives
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;
    uint64_t count = 0;
    int peer = -1;  // rank in the group: the root, or the other end of a message
    State state = State::kStarted;
    int64_t start_ns = 0;  // since the context was created
    int64_t duration_ns = 0;
    int awaited = -1;  // world rank that it waits for, or waited for last
  };

  // Where an operation stands. An operation that is not over yet when 64 others have begun since
  // loses its entry.
  using Ticket = uint64_t;
  Ticket begin(const Operation& operation) noexcept;
  void await(Ticket ticket, int rank) noexcept;
  void end(Ticket ticket, State state, int64_t duration_ns) noexcept;

  // Oldest first. An entry that is being written just then is left out.
  std::vector<Operation> snapshot() const;

 private:
  // A seqlock. The version is twice the number of the ticket, from 1, and odd during a write.
  struct alignas(64) Entry {
    std::atomic<uint64_t> version{0};
    std::array<std::atomic<uint64_t>, 3> name{};
    std::atomic<uint64_t> sequence{0}, count{0};
    std::atomic<int64_t> start_ns{0}, duration_ns{0};
    std::atomic<uint64_t> packed{0};  // peer, state, dtype, kind
    std::atomic<int> awaited{-1};
  };

  static uint64_t version_of(Ticket ticket) { return (ticket + 1) * 2; }
  Entry& entry_of(Ticket ticket) { return entries_[ticket % kEntries]; }
  bool reopen(Ticket ticket) noexcept;

  std::atomic<Ticket> next_{0};
  std::array<Entry, kEntries> entries_;
};

// What a group's record says to a reader outside.
struct GroupRecord {
  std::string name, key;
  std::vector<int> ranks;
  std::string error;  // the first failure; "" when there was none
  std::vector<FlightRecord::Operation> operations;
};

// As one line of JSON. now_ns: since the context was created.
std::string flight_json(int world_rank, int64_t now_ns, const std::vector<GroupRecord>& groups);
// Adds the line to a file, in one write: groups and contexts may share it.
void append_flight_json(const std::string& path, std::string line);

}  // namespace nxd
