// Send and receive of GlooGroup. The sender says what it has, with the data when they are few; the
// receiver answers what it expects; larger data follow once both agree.
#include <cstring>

#include "core/base/dtype.h"
#include "core/comm/gloo_group.h"
#include "core/comm/slots.h"
#include "core/comm/socket.h"

namespace nxd {
namespace {

constexpr size_t kInlineLimit = 4096;

// A header, followed by inline data or the reason of a refusal.
struct Envelope {
  CallHeader header;
  char body[kInlineLimit];

  size_t size() const { return sizeof header + header.payload_size; }
  std::string reason() const { return std::string(body, header.payload_size); }
  void refuse(const std::string& why) {
    header.refused = 1;
    header.payload_size = static_cast<uint32_t>(std::min(why.size(), sizeof body));
    std::memcpy(body, why.data(), header.payload_size);
  }
};

Envelope envelope(Operation operation, const void* buffer, size_t count, nxd_dtype_t dtype) {
  Envelope own;
  own.header = CallHeader();
  own.header.operation = operation;
  own.header.count = count;
  if (std::string(dtype_name(dtype)) == "invalid") {
    own.refuse(text("dtype: expected an NXD_DTYPE_*, got ", dtype));
    return own;
  }
  own.header.dtype = static_cast<int8_t>(dtype);
  if (count > static_cast<size_t>(PTRDIFF_MAX) / dtype_size(dtype)) {
    own.refuse(text("count: ", count, " elements do not fit in memory"));
  } else if (count > 0 && !buffer) {
    own.refuse("buffer: expected a pointer, got NULL");
  }
  return own;
}

}  // namespace

void GlooGroup::check_peer(const char* operation, const char* argument, int peer, int tag) {
  link_.begin(operation, message_sequence_);
  if (peer < 0 || peer >= size() || peer == rank()) {
    throw link_.error(
        NXD_ERROR_INVALID_ARGUMENT, ranks()[static_cast<size_t>(rank())],
        text(argument, ": expected another rank of the group, 0 to ", size() - 1, ", got ", peer));
  }
  if (tag < 0 || tag > kTagLimit) {
    throw link_.error(NXD_ERROR_INVALID_ARGUMENT, ranks()[static_cast<size_t>(rank())],
                      text("tag: expected 0 to ", kTagLimit, ", got ", tag));
  }
  ++message_sequence_;
}

// Both ends come to the same verdict from the same two headers.
void GlooGroup::check_match(int peer, const CallHeader& own, const std::string& own_refusal,
                            const CallHeader& other, const std::string& other_refusal) {
  const int other_rank = ranks()[static_cast<size_t>(peer)];
  const int own_rank = ranks()[static_cast<size_t>(rank())];
  if (own.refused) throw link_.error(NXD_ERROR_INVALID_ARGUMENT, own_rank, own_refusal);
  if (other.refused) {
    throw link_.error(NXD_ERROR_INVALID_ARGUMENT, other_rank,
                      text("rank ", other_rank, " refused its arguments: ", other_refusal));
  }
  if (own.count != other.count || own.dtype != other.dtype) {
    throw link_.error(NXD_ERROR_INVALID_ARGUMENT, other_rank,
                      text("ranks disagree: rank ", own_rank, " calls ", own.describe(), ", rank ",
                           other_rank, " calls ", other.describe()));
  }
}

void GlooGroup::send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) {
  const NoSigpipe quiet;
  check_peer("send", "to", to, tag);
  link_.connect({to});
  const auto slot = static_cast<uint64_t>(tag);
  Envelope own = envelope(Operation::kSend, buffer, count, dtype);
  const size_t bytes = own.header.refused ? 0 : count * dtype_size(dtype);
  if (!own.header.refused && bytes <= kInlineLimit) {
    own.header.payload_size = static_cast<uint32_t>(bytes);
    if (bytes > 0) std::memcpy(own.body, buffer, bytes);
  }
  Envelope answer;
  Exchange exchange(link_);
  exchange.receive(to, kMessageAnswerSlot + slot, &answer, sizeof answer);
  exchange.send(to, kMessageHeaderSlot + slot, &own, own.size());
  exchange.wait_received();
  exchange.wait_sent();
  check_match(to, own.header, own.header.refused ? own.reason() : "", answer.header,
              answer.header.refused ? answer.reason() : "");
  if (bytes <= kInlineLimit) return;
  exchange.send(to, kMessageDataSlot + slot, buffer, bytes);
  exchange.wait_sent();
}

void GlooGroup::receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) {
  const NoSigpipe quiet;
  check_peer("receive", "from", from, tag);
  link_.connect({from});
  const auto slot = static_cast<uint64_t>(tag);
  Envelope own = envelope(Operation::kReceive, buffer, count, dtype);
  const size_t bytes = own.header.refused ? 0 : count * dtype_size(dtype);
  Envelope offer;
  Exchange exchange(link_);
  exchange.receive(from, kMessageHeaderSlot + slot, &offer, sizeof offer);
  exchange.wait_received();
  const bool agreed = !own.header.refused && !offer.header.refused &&
                      own.header.count == offer.header.count &&
                      own.header.dtype == offer.header.dtype;
  if (agreed && bytes > kInlineLimit) {
    exchange.receive(from, kMessageDataSlot + slot, buffer, bytes);
  }
  exchange.send(from, kMessageAnswerSlot + slot, &own, own.size());
  if (agreed && bytes > 0 && bytes <= kInlineLimit) std::memcpy(buffer, offer.body, bytes);
  exchange.wait_received();
  exchange.wait_sent();
  check_match(from, own.header, own.header.refused ? own.reason() : "", offer.header,
              offer.header.refused ? offer.reason() : "");
}

}  // namespace nxd
