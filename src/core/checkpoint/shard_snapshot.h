#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/snapshot.h"
#include "core/comm/process_group.h"
#include "core/kernels/memory_pool.h"

namespace nxd {

// Copies of this rank's shards of tensors, which ranks write by write_shares(). One of several
// copies of a model writes; the others' snapshots are empty.
class ShardSnapshot : public Snapshot {
 public:
  // Ranks that hold the shards of a tensor, and the stages of a pipeline; null ones have one rank.
  ShardSnapshot(std::shared_ptr<ProcessGroup> tensor, std::shared_ptr<ProcessGroup> pipeline,
                bool is_written, int world_rank, std::map<std::string, std::string> metadata);

  // Copies the shard's elements, which lie dense in C order, where the snapshot is written.
  void add(const std::string& name, nxd_dtype_t dtype, const ShardSpec& shard, const void* local);

  std::vector<ProcessGroup*> groups() const override { return {tensor_.get(), pipeline_.get()}; }
  std::vector<CheckpointFile> write(const std::string& path) override;

 private:
  struct Copy {
    TensorEntry entry;
    ShardSpec shard;
    kernels::PoolBlock local;
  };

  const std::shared_ptr<ProcessGroup> tensor_, pipeline_;
  const bool is_written_;
  const int world_rank_;
  const std::map<std::string, std::string> metadata_;
  std::deque<Copy> copies_;
};

}  // namespace nxd
