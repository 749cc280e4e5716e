#pragma once

#include <cstdint>

namespace nxd {

// Gloo matches sends to receives by slot. Rounds of the agreement have the slots from 0.
constexpr uint64_t kReduceSlot = 1000;
constexpr uint64_t kGatherSlot = 1001;
constexpr uint64_t kAllToAllSlot = 1002;
constexpr uint64_t kBroadcastSlot = 1003;
constexpr uint64_t kSentinelSlot = 1004;  // nothing is ever sent there

// Point to point: one slot of each kind per tag.
constexpr uint64_t kMessageHeaderSlot = uint64_t{1} << 32;
constexpr uint64_t kMessageAnswerSlot = uint64_t{2} << 32;
constexpr uint64_t kMessageDataSlot = uint64_t{3} << 32;

}  // namespace nxd
