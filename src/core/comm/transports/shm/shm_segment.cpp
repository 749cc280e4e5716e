#include "core/comm/transports/shm/shm_segment.h"

#include "core/base/error.h"
#include "core/base/huge_page.h"
#include "core/base/round_up.h"

namespace nxd {
namespace {

constexpr size_t kBuffers =
    ShmSegment::kTurns * ShmSegment::kSmall + ShmSegment::kSlots * ShmSegment::kSlot;
constexpr size_t kPage = 4096;
// The system backs whole ones of these by huge pages, which halves the time of large calls.

}  // namespace

size_t ShmSegment::channels_at(int ranks) {
  return static_cast<size_t>(ranks) * sizeof(ShmControl);
}

size_t ShmSegment::buffers_at(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  return round_up(channels_at(ranks) + n * n * sizeof(ShmChannel), kPage);
}

size_t ShmSegment::size_for(int ranks) {
  return round_up(buffers_at(ranks) + static_cast<size_t>(ranks) * kBuffers, kHugePage);
}

ShmSegment::ShmSegment(SharedMemory memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {
  check_internal(memory_.size() == size_for(ranks), "shared memory of ", memory_.size(),
                 " bytes for ", ranks, " ranks");
}

ShmControl& ShmSegment::control(int rank) const {
  return reinterpret_cast<ShmControl*>(memory_.data())[rank];
}

ShmChannel& ShmSegment::channel(int from, int to) const {
  auto* channels = reinterpret_cast<ShmChannel*>(memory_.data() + channels_at(ranks_));
  return channels[static_cast<size_t>(from) * static_cast<size_t>(ranks_) +
                  static_cast<size_t>(to)];
}

char* ShmSegment::buffers(int rank) const {
  return memory_.data() + buffers_at(ranks_) + static_cast<size_t>(rank) * kBuffers;
}

char* ShmSegment::small(int rank, size_t turn) const {
  return buffers(rank) + turn % kTurns * kSmall;
}

char* ShmSegment::slot(int rank, size_t number) const {
  return buffers(rank) + kTurns * kSmall + number % kSlots * kSlot;
}

}  // namespace nxd
