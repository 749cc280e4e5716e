#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/gloo_link.h"

namespace nxd {

enum class Operation : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
  kRefuse
};
const char* operation_name(Operation operation) noexcept;

// What a rank is about to do. Ranks compare these before any data moves.
struct CallHeader {
  uint64_t sequence = 0;
  uint64_t count = 0;
  int32_t root = -1;
  uint32_t payload_size = 0;
  Operation operation = Operation::kBarrier;
  int8_t dtype = NXD_DTYPE_INVALID;
  int8_t reduce = NXD_REDUCE_INVALID;
  uint8_t refused = 0;  // the rank's own arguments are bad; the payload says why
  uint32_t reserved = 0;

  bool agrees_with(const CallHeader& other) const;
  std::string describe() const;
};
static_assert(sizeof(CallHeader) == 32);

// Gives every rank the header, and a small payload, of every other: an all-gather by dissemination
// (Bruck et al., Efficient algorithms for all-to-all communications, 1997) in ceil(log2 n) rounds.
// Receives are posted ahead, so that a round costs one message on the wire.
class Agreement {
 public:
  explicit Agreement(GlooLink& link);

  // Bytes that a rank may send along with its header.
  size_t payload_limit() const { return payload_limit_; }

  struct Block {
    CallHeader header;
    const void* payload;  // valid until the next exchange; aligned to 16 bytes
  };
  // By rank. Fails with INVALID_ARGUMENT, naming both sides, unless all headers agree and none was
  // refused. The payload has header.payload_size bytes.
  const std::vector<Block>& exchange(const CallHeader& header, const void* payload);

 private:
  struct Round {
    int to, from;
    size_t blocks;  // that are passed on
    std::vector<char> in;
    bool posted = false;
    GlooLink::Buffer in_buffer, out_buffer;
  };

  void prepare();
  void put_own(const CallHeader& header, const void* payload);
  void take(Round& round);
  void check_all() const;

  GlooLink& link_;
  size_t payload_limit_;
  bool prepared_ = false;
  std::vector<Round> rounds_;
  std::vector<char> storage_;
  char* area_ = nullptr;         // blocks of this rank, the next, ..., one after the other
  std::vector<size_t> offsets_;  // where each starts, and where the last ends
  std::vector<Block> blocks_;
};

}  // namespace nxd
