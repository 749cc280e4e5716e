#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nxd {

// A few bytes in shared memory that say by themselves that they have arrived: every cache line ends
// with the mark of its call, written last. A reader takes each line as soon as it is there, and
// fetches no counter before it, as in NCCL's LL128 protocol; but no line need be written at once.
//
// A place is for one writer. It may write again when all readers have read.
class Letter {
 public:
  static constexpr size_t kLineBytes = 56;
  static constexpr size_t room_for(size_t bytes) {
    return (bytes + kLineBytes - 1) / kLineBytes * sizeof(Line);
  }

  // place: room_for(bytes) bytes, aligned to 64. The mark differs from that of any other letter
  // that a reader could find there.
  static void write(void* place, const void* data, size_t bytes, uint64_t mark) noexcept;
  // Looks at most so many times at a line that is not there yet. Whether all were.
  static bool read(const void* place, void* data, size_t bytes, uint64_t mark, int looks) noexcept;

 private:
  struct alignas(64) Line {
    char data[kLineBytes];
    std::atomic<uint64_t> mark;
  };
  static_assert(sizeof(Line) == 64 && std::atomic<uint64_t>::is_always_lock_free);
};

}  // namespace nxd
