#include "core/comm/transports/gloo/summary_agreement.h"

#include "core/comm/pattern.h"

namespace nxd {

void SummaryAgreement::prepare() {
  if (!rounds_.empty()) return;
  const std::vector<Exchanged> pattern = dissemination(link_.rank(), link_.size());
  const size_t count = pattern.size();
  std::vector<int> peers;
  std::vector<Round> rounds(count);
  for (size_t i = 0; i < count; ++i) {
    rounds[i].to = pattern[i].to;
    rounds[i].from = pattern[i].from;
    peers.push_back(rounds[i].to);
    peers.push_back(rounds[i].from);
  }
  link_.connect(peers);
  for (size_t i = 0; i < count; ++i) {
    Round& round = rounds[i];
    round.in_buffer = link_.buffer(&round.in, sizeof round.in);
    round.out_buffer = link_.buffer(&round.out, sizeof round.out);
    link_.post_receive(round.from, i, *round.in_buffer, sizeof round.in);
    round.posted = true;
  }
  rounds_ = std::move(rounds);
}

std::optional<Rejection> SummaryAgreement::exchange(const CallHeader& header,
                                                    const std::optional<Rejection>& own) {
  prepare();
  CallSummary summary(link_.rank(), header, own);
  for (size_t i = 0; i < rounds_.size(); ++i) {
    Round& round = rounds_[i];
    if (!round.posted) link_.post_receive(round.from, i, *round.in_buffer, sizeof round.in);
    round.out = summary;
    link_.post_send(round.to, i, *round.out_buffer, round.out.size());
    link_.wait_received(round.from, *round.in_buffer);
    if (!round.in.is_of_group(link_.size())) link_.fail_unreadable(round.from);
    summary.merge(round.in);
    round.posted = link_.try_post_receive(round.from, i, *round.in_buffer, sizeof round.in);
  }
  for (Round& round : rounds_) link_.wait_sent(round.to, *round.out_buffer);
  return summary.rejection(link_.ranks());
}

}  // namespace nxd
