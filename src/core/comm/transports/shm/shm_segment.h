#pragma once

#include <atomic>

#include "core/comm/call_header.h"
#include "core/comm/memory/arena.h"
#include "core/comm/memory/process_watch.h"
#include "core/comm/memory/shared_counter.h"

namespace nxd {

// A rank's call descriptor for its peers. Each rank has two and uses them in turn: it writes one
// only when all peers have begun the call after the one that it was last used for.
struct alignas(64) ShmCallDescriptor {
  CallHeader header;
  ArenaPlace send, receive;
  char reason[440];  // why the rank rejects it, header.payload_size bytes
};
static_assert(sizeof(ShmCallDescriptor) == 512);

// The control block that a rank writes and its peers read.
struct ShmControl {
  SharedCounter progress;
  // Not 0: the rank has left, by choice or by failure; kDeparted and, in the low half, its progress
  // after the last call that it completed.
  alignas(128) std::atomic<uint64_t> departed{0};
  static constexpr uint64_t kDeparted = uint64_t{1} << 32;
  ProcessId process;  // valid once attached is set
  std::atomic<uint32_t> attached{0};
  ShmCallDescriptor descriptors[2];
};

// A sender's description of a message.
struct alignas(64) ShmMessageDescriptor {
  CallHeader header;
  ArenaPlace data;  // when the receiver can read them where they are
  ArenaPlace staging;
  uint32_t base = 0;  // where the buffer's counters stand
  int32_t tag = 0;
  char reason[176] = {};  // why the rank rejects it, header.payload_size bytes
};
static_assert(sizeof(ShmMessageDescriptor) == 256);

// Descriptors of messages from one rank to another, in order. The receiver takes them out of the
// ring whether it has a use for them yet or not, so that no message waits behind another.
struct ShmChannel {
  static constexpr uint32_t kMessages = 8;
  SharedCounter posted;  // by the sender
  SharedCounter taken;   // by the receiver
  ShmMessageDescriptor messages[kMessages];
};

// A sender and a receiver carry out one message after another in it. It lies in the sender's arena.
// From the descriptor's base on, the receiver counts 1 for its answer, and both count 1 for each
// part.
struct ShmStagingBuffer {
  static constexpr size_t kPart = size_t{128} << 10;
  static constexpr size_t kParts = 4;
  SharedCounter filled;  // by the sender
  SharedCounter taken;   // by the receiver
  struct {
    CallHeader header;
    char reason[224];
  } answer;
  alignas(4096) char parts[kParts][kPart];
};

// Layout of the memory that the ranks of one group share: for each rank a control block and
// buffers, and for each pair of ranks a channel. Zero bytes are its initial state.
class ShmSegment {
 public:
  static constexpr size_t kSmall = size_t{64} << 10;  // a call's data go here when they fit
  static constexpr size_t kTurns = 8;                 // calls take these in turn
  static constexpr size_t kSlot = size_t{256} << 10;  // larger ones pass through a ring of these
  static constexpr size_t kSlots = 4;

  static size_t size_for(int ranks);

  ShmSegment(SharedMemory memory, int ranks);

  SharedMemory& memory() { return memory_; }
  ShmControl& control(int rank) const;
  ShmChannel& channel(int from, int to) const;
  char* small(int rank, size_t turn) const;
  char* slot(int rank, size_t number) const;

 private:
  static size_t channels_at(int ranks);
  static size_t buffers_at(int ranks);
  char* buffers(int rank) const;

  SharedMemory memory_;
  int ranks_;
};

}  // namespace nxd
