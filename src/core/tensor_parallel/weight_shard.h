#pragma once

#include "core/agree/proposal.h"
#include "core/layout/initializer.h"
#include "core/layout/shard_options.h"
#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/group_calls.h"

namespace nxd {

// Fills a shard with the initial values that the weight of this name has.
void initialize_shard(const Context& context, const std::string& name, const WeightInit& init,
                      const ShardOptions& options, const Array& shard);

// Copies a rank's part of a whole weight.
void set_full(const Context& context, const Array& full, const ShardOptions& options,
              const Array& shard);

// Reads a rank's part of a tensor of a safetensors file, or of a directory of these.
void load_shard(const Context& context, const std::string& path, const std::string& name,
                const ShardOptions& options, const Array& shard);

// Puts a whole weight together on all ranks. A plan for run_layer().
class ShardGather {
 public:
  ShardGather(const ProcessGroup& group, const Array& shard, const ShardOptions& options,
              const Array& full);

  void allocate() { scratch_.allocate(group_, {}); }
  static void propose(Proposal& proposal, const ShardGather* plan);
  int collectives() const { return group_.size() > 1 ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  ShardSpec spec(int rank) const;

  const ProcessGroup& group_;
  Array shard_, full_;
  ShardOptions options_;
  Scratch scratch_;
  size_t parts_block_;  // all ranks' shards, one after another
  DenseOutput out_;
};

}  // namespace nxd
