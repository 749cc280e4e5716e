#include "core/checkpoint/shard_snapshot.h"

#include <cstring>
#include <utility>

#include "core/base/dtype.h"
#include "core/layout/shard_gather.h"

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

void ShardSnapshot::write(const std::string& path) {
  if (!is_written_) return;
  kernels::PoolBlock whole;  // of the tensor under way
  std::vector<StageTensor> tensors;
  for (const Copy& copy : copies_) {
    tensors.push_back({copy.entry, [this, &whole, &copy]() -> const void* {
                         if (copy.shard.dim() < 0) return copy.local.get();
                         const size_t bytes = static_cast<size_t>(copy.shard.global_size()) *
                                              dtype_size(copy.entry.dtype);
                         whole.reset();
                         whole.reset(kernels::pool_allocate(bytes));
                         std::memset(whole.get(), 0, bytes);
                         gather_shards(tensor_.get(), copy.shard, copy.entry.dtype,
                                       copy.local.get(), whole.get());
                         return whole.get();
                       }});
  }
  write_collective(path, {tensor_.get(), pipeline_.get(), nullptr, world_rank_}, tensors,
                   metadata_);
}

}  // namespace nxd
