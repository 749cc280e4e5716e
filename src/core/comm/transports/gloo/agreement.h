#pragma once

#include <cstddef>
#include <vector>

#include "core/comm/call_header.h"
#include "core/comm/transports/gloo/gloo_link.h"

namespace nxd {

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
    const char* payload;  // valid until the next exchange; aligned to 8 bytes
  };
  // The payload has header.payload_size bytes. Nothing when all headers agree and none is rejected:
  // blocks() are the ranks' then.
  std::optional<Rejection> exchange(const CallHeader& header, const void* payload);
  const std::vector<Block>& blocks() const { return blocks_; }  // by rank

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
