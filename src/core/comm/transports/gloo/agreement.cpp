#include "core/comm/transports/gloo/agreement.h"

#include <algorithm>
#include <cstring>

#include "core/base/round_up.h"
#include "core/comm/pattern.h"

namespace nxd {
namespace {

constexpr size_t kAlignment = 16;

}  // namespace

Agreement::Agreement(GlooLink& link) : link_(link) {
  // Between two ranks inline payloads cost no more bytes than reduce-scatter and all-gather would;
  // among many they are copied around often.
  const auto n = static_cast<size_t>(link.size());
  payload_limit_ = std::clamp<size_t>(65536 / n, 128, 32768) / kAlignment * kAlignment;
}

void Agreement::prepare() {
  if (prepared_) return;
  const auto n = static_cast<size_t>(link_.size());
  const size_t block_limit = sizeof(CallHeader) + payload_limit_;
  storage_.resize(n * block_limit + 64);
  area_ = storage_.data() + (64 - reinterpret_cast<uintptr_t>(storage_.data()) % 64) % 64;
  blocks_.resize(n);
  std::vector<int> peers;
  for (const Exchanged& exchanged : dissemination(link_.rank(), link_.size())) {
    Round round;
    round.to = exchanged.to;
    round.from = exchanged.from;
    round.blocks = exchanged.blocks;
    round.in.resize(round.blocks * block_limit);
    peers.push_back(round.to);
    peers.push_back(round.from);
    rounds_.push_back(std::move(round));
  }
  link_.connect(peers);
  for (size_t i = 0; i < rounds_.size(); ++i) {
    Round& round = rounds_[i];
    round.in_buffer = link_.buffer(round.in.data(), round.in.size());
    round.out_buffer = link_.buffer(area_, n * block_limit);
    link_.post_receive(round.from, i, *round.in_buffer, round.in.size());
    round.posted = true;
  }
  prepared_ = true;
}

void Agreement::put_own(const CallHeader& header, const void* payload) {
  std::memcpy(area_, &header, sizeof header);
  if (header.payload_size > 0) {
    std::memcpy(area_ + sizeof header, payload, header.payload_size);
  }
  offsets_.assign({0, sizeof header + round_up<size_t>(header.payload_size, kAlignment)});
}

// Appends the blocks that came in. Their sizes are in their headers.
void Agreement::take(Round& round) {
  size_t at = 0;
  for (size_t i = 0; i < round.blocks; ++i) {
    CallHeader header;
    std::memcpy(&header, round.in.data() + at, sizeof header);
    if (header.payload_size > payload_limit_) link_.fail_unreadable(round.from);
    const size_t size = sizeof header + round_up<size_t>(header.payload_size, kAlignment);
    std::memcpy(area_ + offsets_.back(), round.in.data() + at, size);
    offsets_.push_back(offsets_.back() + size);
    at += size;
  }
}

std::optional<Rejection> Agreement::exchange(const CallHeader& header, const void* payload) {
  prepare();
  put_own(header, payload);
  for (size_t i = 0; i < rounds_.size(); ++i) {
    Round& round = rounds_[i];
    if (!round.posted) link_.post_receive(round.from, i, *round.in_buffer, round.in.size());
    link_.post_send(round.to, i, *round.out_buffer, offsets_[round.blocks]);
    link_.wait_received(round.from, *round.in_buffer);
    take(round);
    round.posted = link_.try_post_receive(round.from, i, *round.in_buffer, round.in.size());
  }
  for (Round& round : rounds_) link_.wait_sent(round.to, *round.out_buffer);
  const size_t n = blocks_.size();
  for (size_t i = 0; i < n; ++i) {
    Block& block = blocks_[(static_cast<size_t>(link_.rank()) + i) % n];
    std::memcpy(&block.header, area_ + offsets_[i], sizeof(CallHeader));
    block.payload = area_ + offsets_[i] + sizeof(CallHeader);
  }
  std::vector<CallProposal> proposals;
  for (const Block& block : blocks_) proposals.push_back({&block.header, block.payload});
  return find_rejection(link_.ranks(), proposals);
}

}  // namespace nxd
