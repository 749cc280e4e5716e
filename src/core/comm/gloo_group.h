#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/agreement.h"
#include "core/comm/collective_call.h"
#include "core/comm/exchange.h"
#include "core/comm/gloo_link.h"
#include "core/comm/process_group.h"

namespace nxd {

// A group of two or more ranks over Gloo's TCP transport. Gloo carries the messages; the algorithms
// are ours, so that sums are in rank order and every wait knows whom it is for.
class GlooGroup : public ProcessGroup {
 public:
  GlooGroup(std::shared_ptr<const LinkShared> shared, std::string key, std::string name, int rank,
            std::vector<int> ranks, int64_t timeout_ms);
  ~GlooGroup() override;

  const std::string& name() const override { return link_.name(); }
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  const std::vector<int>& ranks() const override { return link_.ranks(); }

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

  void abort() noexcept override { link_.abort(); }
  void set_timeout_ms(int64_t timeout_ms) override;
  void refuse(const char* operation, const std::string& reason) override;

 private:
  using Blocks = std::vector<Agreement::Block>;

  // A part of the elements that a rank reduces, or contributes.
  struct Range {
    size_t begin, count;
  };

  // Starts a collective: all ranks agree on it. Sends along payload_size bytes of the call's data
  // when they are few enough; whether they are is the same on all ranks that agree.
  const Blocks& agree(const CollectiveCall& call, size_t payload_size);
  bool is_inline(size_t payload_size) const { return payload_size <= agreement_.payload_limit(); }

  void reduce_ranges(const CollectiveCall& call, const std::vector<Range>& ranges, void* out);
  void broadcast_tree(char* data, size_t size, int root);

  void check_peer(const char* operation, const char* argument, int peer, int tag);
  void check_match(int peer, const CallHeader& own, const std::string& own_refusal,
                   const CallHeader& other, const std::string& other_refusal);

  GlooLink link_;
  Agreement agreement_;
  uint64_t sequence_ = 0;
  uint64_t message_sequence_ = 0;  // of sends and receives
  std::vector<char> staging_;      // grows to what the largest reduction needs
};

}  // namespace nxd
