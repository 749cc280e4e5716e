#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// The last collectives and the last messages of a group: they show what each rank was doing when it
// stopped. Threads that run operations write without locks or allocation; any thread may
// read at any time.
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

  // The place of an operation in the record. An operation that is not over yet when 64 others of
  // its kind have begun since loses its entry.
  struct Ticket {
    uint64_t number = 0;
    bool is_message = false;
  };
  // One collective is in progress at a time, and any number of messages.
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

    void write(const Operation& operation) noexcept;
    // The entry's operation, if it is this ticket's and is not being written.
    bool read(uint64_t version, Operation& out) const noexcept;
  };
  struct Ring {
    std::atomic<uint64_t> next{0};
    std::array<Entry, kEntries> entries;

    Entry& operator[](uint64_t number) { return entries[number % kEntries]; }
    void add_to(std::vector<Operation>& operations) const;
  };

  static uint64_t version_of(uint64_t number) { return (number + 1) * 2; }
  Ticket begin_message(const Operation& operation) noexcept;
  // True if the ticket still has its entry, which is then open for writing.
  bool reopen(Ticket ticket) noexcept;
  Entry& entry_of(Ticket ticket) { return rings_[ticket.is_message ? 1 : 0][ticket.number]; }

  std::array<Ring, 2> rings_;  // of collectives, which one thread at a time writes; of messages
};

// A group's record, for a reader outside.
struct GroupRecord {
  std::string name, key;
  std::vector<int> ranks;
  std::string error;  // the first failure; "" when there was none
  std::vector<FlightRecord::Operation> operations;
};

// As one line of JSON. now_ns: since the context was created.
std::string flight_json(int world_rank, int64_t now_ns, const std::vector<GroupRecord>& groups);
// Adds the line to a file, in one write: groups and contexts may share it.
// The file gets all of the line or nothing.
void append_flight_json(const std::string& path, std::string line);

}  // namespace nxd
