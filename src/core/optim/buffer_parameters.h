#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/layout/shard_options.h"
#include "core/optim/parameter_source.h"
#include "core/world/context.h"
#include "nxd.h"

namespace nxd {

// How a parameter is part of a model that is split over tensor- and pipeline-parallel ranks too.
struct ParameterPlacement {
  ShardSpec shard;  // in C order
  // Tensor-parallel ranks that hold these very elements, one after another.
  int ranks_alike = 1;
  bool partial_grad = false;  // its gradient is to be summed over them
  bool counts_in_norm = true;
};

// Parameters and gradients in memory of a caller's, who keeps it while this lives. Each rank of the
// group holds the same part of every parameter: all of it, until place() says otherwise.
class BufferParameters : public ParameterSource {
 public:
  // Arguments as of nxd_ddp_create_buffers; INVALID_ARGUMENT says which one was not as expected.
  BufferParameters(std::shared_ptr<Context> context, std::shared_ptr<ProcessGroup> group,
                   const char* const* names, DLTensor* const* params, DLTensor* const* grads,
                   size_t n);

  // Takes other memory for a parameter, its gradient or both: null leaves one as it is. The index
  // is one of them.
  void rebind(size_t index, const DLTensor* param, const DLTensor* grad);

  // Arguments as of nxd_ddp_set_placements; INVALID_ARGUMENT says which one was not as expected.
  // INVALID_STATE once a step has been made.
  std::vector<ParameterPlacement> placements(const ProcessGroup& tensor,
                                             const nxd_placement_t* kinds, const int32_t* dims,
                                             const int32_t* tied, size_t n) const;
  // The same for nxd_ddp_set_shards.
  std::vector<ParameterPlacement> placements(const ProcessGroup& tensor,
                                             const std::vector<ShardOptions>& shards,
                                             const int32_t* partial_grads, const int32_t* tied,
                                             size_t n) const;
  // From here on norms and states are over these groups. Collective over the tensor-parallel one,
  // whose ranks that share parts of parameters make groups. names: of all stages' parameters.
  void place(std::vector<ParameterPlacement> placements, const OptimizerGroups& groups,
             std::vector<std::string> names);

  size_t size() const override { return infos_.size(); }
  const ParameterInfo& info(size_t index) const override { return infos_[index]; }
  ParameterBuffers buffers(size_t index) override { return buffers_[index]; }
  void make_zero_gradient(size_t index) override;
  void value_changed(size_t index) override { ++value_versions_[index]; }
  uint64_t value_version(size_t index) override { return value_versions_[index]; }

  void mark_partial(size_t index) override { partial_steps_[index] = context_->step(); }
  std::string why_partial() const override;
  void mark_reloaded();

  std::optional<std::vector<std::string>> names_of_model() const override;
  std::string why_no_clipping() const override;
  std::string why_no_file() const override;
  const OptimizerGroups& groups() const override { return groups_; }
  bool plain_kernels() const override { return context_->plain_kernels(); }
  uint64_t seed() const override { return context_->seed(); }
  int64_t step() const override { return context_->step(); }
  void advance_step() override;
  void check_usable() const override { context_->check_usable(); }

 private:
  void add(const std::string& name, const DLTensor* param, const DLTensor* grad, size_t index);
  void check_placeable(size_t n) const;
  void check_memory() const;
  std::shared_ptr<ProcessGroup> group_of_alike(const std::shared_ptr<ProcessGroup>& tensor,
                                               int ranks) const;
  std::string unknown_axis() const;

  std::shared_ptr<Context> context_;
  OptimizerGroups groups_;
  bool placed_ = false, stepped_ = false;
  std::vector<std::string> names_of_model_;  // once placed
  std::vector<ParameterInfo> infos_;
  std::vector<ParameterBuffers> buffers_;
  std::vector<uint64_t> value_versions_;
  std::vector<int64_t> partial_steps_;  // the step whose end broke off; -1 for none
};

}  // namespace nxd
