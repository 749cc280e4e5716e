#include "core/comm/call_header.h"

#include <algorithm>

#include "core/base/dtype.h"
#include "core/base/shortened.h"
#include "core/comm/monitor/group_monitor.h"
#include "core/comm/reduction.h"

namespace nxd {

Error Rejection::error(const GroupMonitor& monitor) const {
  const bool verbatim = disagrees || rank == monitor.world_rank();
  return monitor.error(NXD_ERROR_INVALID_ARGUMENT, rank,
                       verbatim ? why : text("rank ", rank, " rejected its arguments: ", why));
}

Rejection disagreement(int rank, const CallHeader& header, int other_rank,
                       const CallHeader& other) {
  std::string own = header.describe(), others = other.describe();
  // Calls of different numbers, or messages on their ways, may be alike in all that is described.
  if (own == others) {
    own += text(" #", header.sequence);
    others += text(" #", other.sequence);
  }
  return {other_rank, true,
          text("ranks disagree: rank ", rank, " calls ", own, ", rank ", other_rank, " calls ",
               others)};
}

void CallHeader::reject(const Rejection& rejection, char* reason, size_t room) {
  rejected = rejection.disagrees ? Rejected::kDisagreement : Rejected::kArguments;
  root = rejection.rank;
  payload_size = static_cast<uint32_t>(copy_shortened(rejection.why, reason, room));
}

std::optional<Rejection> CallHeader::rejection(const char* reason, size_t room) const {
  if (!is_rejected()) return std::nullopt;
  return Rejection{root, rejected == Rejected::kDisagreement,
                   std::string(reason, std::min<size_t>(payload_size, room))};
}

size_t CallHeader::message_bytes() const {
  return is_rejected() ? 0 : count * dtype_size(static_cast<nxd_dtype_t>(dtype));
}

bool CallHeader::fits(const CallHeader& other) const {
  return !is_rejected() && !other.is_rejected() && count == other.count && dtype == other.dtype &&
         key == other.key;
}

bool CallHeader::agrees_with(const CallHeader& other) const {
  return sequence == other.sequence && operation == other.operation && count == other.count &&
         dtype == other.dtype && reduce == other.reduce && root == other.root && key == other.key;
}

// Multiplication by large odd numbers and folding, as in MurmurHash3's finalizer (Appleby, 2011).
uint64_t CallHeader::digest() const {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 33;
    hash *= 0xc4ceb9fe1a85ec53ULL;
    hash ^= hash >> 29;
  };
  mix(sequence);
  mix(count);
  mix(static_cast<uint64_t>(static_cast<uint32_t>(root)) | static_cast<uint64_t>(operation) << 32 |
      static_cast<uint64_t>(static_cast<uint8_t>(dtype)) << 40 |
      static_cast<uint64_t>(static_cast<uint8_t>(reduce)) << 48 |
      static_cast<uint64_t>(rejected) << 56);
  if (key != 0) mix(key);
  return hash;
}

std::string CallHeader::describe() const {
  std::string out = operation_name(operation);
  if (operation != Operation::kBarrier) {
    out += text(" of ", count, " x ", dtype_name(dtype));
    if (reduce != NXD_REDUCE_INVALID) out += text(" (", reduce_name(reduce), ")");
    if (operation == Operation::kBroadcast) out += text(" from root ", root);
  }
  if (key != 0) out += text(" with key ", key);
  return out;
}

std::optional<Rejection> find_rejection(const std::vector<int>& ranks,
                                        const std::vector<CallProposal>& proposals) {
  for (const CallProposal& proposal : proposals) {
    if (auto found = proposal.header->rejection(proposal.reason, SIZE_MAX)) return found;
  }
  const CallHeader& first = *proposals[0].header;
  for (size_t r = 1; r < proposals.size(); ++r) {
    const CallHeader& other = *proposals[r].header;
    if (!other.agrees_with(first)) return disagreement(ranks[0], first, ranks[r], other);
  }
  return std::nullopt;
}

void check_message(const GroupMonitor& monitor, const MessageSide& own, const MessageSide& other) {
  for (const MessageSide& side : {own, other}) {
    if (const auto found = side.header.rejection(side.reason, side.room)) {
      throw found->error(monitor);
    }
  }
  if (own.header.fits(other.header)) return;
  throw disagreement(own.world_rank, own.header, other.world_rank, other.header).error(monitor);
}

}  // namespace nxd
