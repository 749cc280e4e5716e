#include "core/comm/call_header.h"

#include "core/base/dtype.h"
#include "core/comm/monitor/group_monitor.h"
#include "core/comm/reduction.h"

namespace nxd {

bool CallHeader::agrees_with(const CallHeader& other) const {
  return sequence == other.sequence && operation == other.operation && count == other.count &&
         dtype == other.dtype && reduce == other.reduce && root == other.root;
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
      static_cast<uint64_t>(refused) << 56);
  return hash;
}

std::string CallHeader::describe() const {
  std::string out = operation_name(operation);
  if (operation == Operation::kBarrier) return out;
  out += text(" of ", count, " x ", dtype_name(dtype));
  if (reduce != NXD_REDUCE_INVALID) out += text(" (", reduce_name(reduce), ")");
  if (operation == Operation::kBroadcast) out += text(" from root ", root);
  return out;
}

void check_offers(const GroupMonitor& monitor, const std::vector<int>& ranks,
                  const std::vector<CallOffer>& offers) {
  for (size_t r = 0; r < offers.size(); ++r) {
    const CallHeader& header = *offers[r].header;
    if (!header.refused) continue;
    const std::string reason(static_cast<const char*>(offers[r].reason), header.payload_size);
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, ranks[r],
                        ranks[r] == monitor.world_rank()
                            ? reason
                            : text("rank ", ranks[r], " refused its arguments: ", reason));
  }
  const CallHeader& first = *offers[0].header;
  for (size_t r = 1; r < offers.size(); ++r) {
    const CallHeader& other = *offers[r].header;
    if (other.agrees_with(first)) continue;
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, ranks[r],
                        text("ranks disagree: rank ", ranks[0], " calls ", first.describe(),
                             ", rank ", ranks[r], " calls ", other.describe()));
  }
}

void check_message(const GroupMonitor& monitor, const MessageSide& own, const MessageSide& other) {
  if (own.header->refused) {
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, own.world_rank, own.reason);
  }
  if (other.header->refused) {
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, other.world_rank,
                        text("rank ", other.world_rank, " refused its arguments: ", other.reason));
  }
  if (own.header->count == other.header->count && own.header->dtype == other.header->dtype) return;
  throw monitor.error(
      NXD_ERROR_INVALID_ARGUMENT, other.world_rank,
      text("ranks disagree: rank ", own.world_rank, " calls ", own.header->describe(), ", rank ",
           other.world_rank, " calls ", other.header->describe()));
}

}  // namespace nxd
