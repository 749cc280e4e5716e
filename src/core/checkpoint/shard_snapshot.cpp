#include "core/checkpoint/shard_snapshot.h"

#include <cstring>
#include <utility>

#include "core/base/dtype.h"
#include "core/checkpoint/share_write.h"

namespace nxd {

ShardSnapshot::ShardSnapshot(std::shared_ptr<ProcessGroup> tensor,
                             std::shared_ptr<ProcessGroup> pipeline, bool is_written,
                             int world_rank, std::map<std::string, std::string> metadata)
    : tensor_(std::move(tensor)),
      pipeline_(std::move(pipeline)),
      is_written_(is_written),
      world_rank_(world_rank),
      metadata_(std::move(metadata)) {}

void ShardSnapshot::add(const std::string& name, nxd_dtype_t dtype, const ShardSpec& shard,
                        const void* local) {
  if (!is_written_) return;
  const size_t bytes = static_cast<size_t>(shard.local_size()) * dtype_size(dtype);
  kernels::PoolBlock copy(kernels::pool_allocate(bytes));
  if (bytes > 0) std::memcpy(copy.get(), local, bytes);
  copies_.push_back({{name, dtype, shard.shape()}, shard, std::move(copy)});
}

std::vector<CheckpointFile> ShardSnapshot::write(const std::string& path) {
  if (!is_written_) return {};
  std::vector<TensorShare> shares;
  for (const Copy& copy : copies_) {
    shares.push_back({copy.entry, copy.shard, 0, copy.shard.local_size(), copy.local.get()});
  }
  return write_shares(path, {tensor_.get(), nullptr, pipeline_.get(), world_rank_}, shares,
                      metadata_);
}

}  // namespace nxd
