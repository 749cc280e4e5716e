#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/pattern.h"
#include "core/comm/transport.h"
#include "core/comm/transports/gloo/agreement.h"
#include "core/comm/transports/gloo/exchange.h"
#include "core/comm/transports/gloo/gloo_link.h"
#include "core/comm/transports/gloo/gloo_messages.h"
#include "core/comm/transports/gloo/halving_doubling.h"
#include "core/comm/transports/gloo/summary_agreement.h"

namespace nxd {

// Carries calls among two or more ranks, over Gloo's TCP transport. Gloo carries the messages; the
// algorithms are ours, so that sums have a fixed order and every wait knows its peer.
//
// Few ranks connect each to every other, exchange digests of their calls, and add in rank order.
// Many ranks, NXD_LARGE_GROUP or more, have O(log n) connections each, save for all_to_all and
// messages, which go straight to their receivers; these ranks agree by a SummaryAgreement and add
// as HalvingDoubling says.
class GlooTransport : public Transport {
 public:
  // Serves the monitor's group or a part of it, which key names; see GlooLink.
  GlooTransport(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);

  nxd_transport_t kind() const override { return NXD_TRANSPORT_GLOO; }
  void run(const Call& call) override;

  // For groups that this one is part of: compares headers, and no more. A rejection of this rank's
  // is the others' too.
  std::optional<Rejection> compare(const Call& call, const std::optional<Rejection>& own);

 private:
  int rank() const { return link_.rank(); }
  int size() const { return link_.size(); }
  // Starts a collective: all ranks agree on it. Sends the data of parts times the call's count
  // along when they are few enough; whether they are is the same on all ranks that agree. Returns
  // their bytes.
  size_t agree(const Call& call, size_t parts);
  bool is_inline(size_t payload_size) const {
    return !many_ && payload_size <= agreement_.payload_limit();
  }
  std::optional<Rejection> exchange(CallHeader header, const std::optional<Rejection>& own,
                                    const void* payload);
  // The payload of a rank.
  const char* sent_along(size_t rank) const { return agreement_.blocks()[rank].payload; }

  void all_reduce(const Call& call);
  void all_gather(const Call& call);
  void reduce_scatter(const Call& call);
  void broadcast(const Call& call);
  void all_to_all(const Call& call);

  void all_reduce_chunks(const Call& call);
  void reduce_ranges(const Call& call, const std::vector<Share>& ranges, void* out);
  void gather_from_all(const void* send, char* out, size_t bytes);
  void gather_in_rounds(char* out, size_t bytes);
  void exchange_with_all(const char* in, char* out, size_t bytes);
  void broadcast_tree(char* data, size_t size, int root);

  GlooLink link_;
  GroupMonitor& monitor_;
  const bool many_;
  Agreement agreement_;
  SummaryAgreement summary_agreement_;  // instead, among many
  HalvingDoubling halving_doubling_;
  GlooMessages messages_;
  std::vector<char> staging_;  // grows to what the largest reduction needs
};

}  // namespace nxd
