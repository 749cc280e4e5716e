#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nxd {

// An eager message with inline flags, as in NCCL's LL128 protocol: a few bytes in shared memory,
// whose every cache line ends with the flag of its call, written last. A reader takes each line as
// soon as it is there, and fetches no counter before it. Unlike LL128, no line need be written at
// once.
//
// A place is for one writer. It may write again when all readers have read.
class EagerMessage {
 public:
  static constexpr size_t kLineBytes = 56;
  static constexpr size_t room_for(size_t bytes) {
    return (bytes + kLineBytes - 1) / kLineBytes * sizeof(Line);
  }

  // place: room_for(bytes) bytes, aligned to 64. The flag differs from that of any other message
  // that a reader could find there.
  static void write(void* place, const void* data, size_t bytes, uint64_t flag) noexcept;
  // Looks at most so many times at a line that is not there yet. True if all were.
  static bool read(const void* place, void* data, size_t bytes, uint64_t flag, int looks) noexcept;

 private:
  struct alignas(64) Line {
    char data[kLineBytes];
    std::atomic<uint64_t> flag;
  };
  static_assert(sizeof(Line) == 64 && std::atomic<uint64_t>::is_always_lock_free);
};

}  // namespace nxd
