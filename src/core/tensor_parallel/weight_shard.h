#pragma once

#include "core/agree/proposal.h"
#include "core/layout/initializer.h"
#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/group_calls.h"

namespace nxd {

struct ShardOptions {
  std::optional<int64_t> dim{};  // absent: each rank has the whole weight
  int64_t size = 0;              // of dim in the whole weight; 0: the shards' together
  int num_fused = 1;
  int num_heads = 0;  // 0: of no concern
};

// The part that a rank of so many holds of a weight of which it has an array of this shape.
// INVALID_ARGUMENT where no whole weight has such a shard.
ShardSpec shard_of(const Array::Shape& local, const ShardOptions& options, int rank, int ranks);

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
