#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/collective_call.h"
#include "core/comm/process_group.h"
#include "core/comm/transports/gloo/agreement.h"
#include "core/comm/transports/gloo/butterfly.h"
#include "core/comm/transports/gloo/exchange.h"
#include "core/comm/transports/gloo/gloo_link.h"
#include "core/comm/transports/gloo/verdict_exchange.h"

namespace nxd {

// A group of two or more ranks over Gloo's TCP transport. Gloo carries the messages; the algorithms
// are ours, so that sums have a fixed order and every wait knows whom it is for.
//
// Few ranks connect to one another all, tell one another what they are about to do, and add in rank
// order. Many ranks, NXD_LARGE_GROUP or more, have O(log n) connections each, save for all_to_all
// and messages, which go straight to whom they are for; they agree by a Verdict and add as
// Butterfly says.
class GlooGroup : public ProcessGroup {
 public:
  // Of the monitor's group or of a part of it, which key names; see GlooLink.
  GlooGroup(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);
  ~GlooGroup() override;

  const std::string& name() const override { return monitor_.name(); }
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  const std::vector<int>& ranks() const override { return link_.ranks(); }
  nxd_transport_t transport() const override { return NXD_TRANSPORT_GLOO; }

  void all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                  nxd_reduce_t reduce) override;
  void all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) override;
  void reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                      nxd_reduce_t reduce) override;
  void broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) override;
  void all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) override;
  void send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) override;
  void receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) override;
  void barrier() override;

  void abort() noexcept override { monitor_.abort(); }
  void set_timeout_ms(int64_t timeout_ms) override { monitor_.set_timeout_ms(timeout_ms); }
  void refuse(const char* operation, const std::string& reason) override;
  void refuse_message(Operation operation, int peer, int tag, const std::string& reason) override;

  // For groups that this one is part of: compares headers, and no more. A reason refuses the call.
  void compare(CallHeader header, const std::string& reason);

 private:
  using Blocks = std::vector<Agreement::Block>;

  // A part of the elements that a rank reduces, or contributes.
  struct Range {
    size_t begin, count;
  };

  // Starts a collective: all ranks agree on it. Sends along payload_size bytes of the call's data
  // when they are few enough; whether they are is the same on all ranks that agree.
  const Blocks& agree(const CollectiveCall& call, size_t payload_size);
  bool is_inline(size_t payload_size) const {
    return !many_ && payload_size <= agreement_.payload_limit();
  }

  void all_reduce_pieces(const CollectiveCall& call);
  void reduce_ranges(const CollectiveCall& call, const std::vector<Range>& ranges, void* out);
  void gather_from_all(const void* send, char* out, size_t bytes);
  void gather_in_rounds(char* out, size_t bytes);
  void exchange_with_all(const char* in, char* out, size_t bytes);
  void broadcast_tree(char* data, size_t size, int root);

  struct Envelope;
  static Envelope envelope(Operation operation, const void* buffer, size_t count,
                           nxd_dtype_t dtype);
  void offer(Envelope& own, const void* buffer, int to, int tag);
  void accept(Envelope& own, void* buffer, int from, int tag);

  GlooLink link_;
  GroupMonitor& monitor_;
  const bool many_;
  Agreement agreement_;
  VerdictExchange verdicts_;  // instead, among many
  Butterfly butterfly_;
  const Blocks no_blocks_;
  std::vector<char> staging_;  // grows to what the largest reduction needs
};

}  // namespace nxd
