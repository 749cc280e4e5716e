#pragma once

#include <functional>

#include "core/optim/buffer_parameters.h"
#include "core/optim/data_parallel.h"

namespace nxd {

// Data parallelism over buffers of a caller's, who says when gradients are complete.
class BufferDataParallel : public DataParallel {
 public:
  // See nxd_ddp_create_buffers. A null group: the data-parallel one, or the world. Collective over
  // the group, whose ranks all fail with one whose options are none, as resolved says.
  BufferDataParallel(std::shared_ptr<Context> context, std::shared_ptr<ProcessGroup> group,
                     const char* const* names, DLTensor* const* params, DLTensor* const* grads,
                     size_t n, const DataParallelOptions& options, const Outcome& resolved = {});

  void mark_ready(size_t index) override;
  void mark_unused(size_t index) override;
  void rebind(size_t index, const DLTensor* param, const DLTensor* grad) override;
  void mark_reloaded() override { parameters_->mark_reloaded(); }
  void set_placements(const nxd_placement_t* placements, const int32_t* dims, const int32_t* tied,
                      size_t n) override;
  void set_shards(const std::vector<ShardOptions>& shards, const Outcome& resolved,
                  const int32_t* partial_grads, const int32_t* tied, size_t n) override;

 private:
  using MakePlacements = std::function<std::vector<ParameterPlacement>(const ProcessGroup& tensor)>;
  void place(const char* operation, const int32_t* tied, const MakePlacements& make);

  void check_sync() const;

  void check_group(const OptimizerGroups& groups) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<BufferParameters> parameters_;
};

}  // namespace nxd
