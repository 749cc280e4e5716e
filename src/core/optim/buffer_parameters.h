#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/optim/parameter_source.h"
#include "core/world/context.h"
#include "nxd.h"

namespace nxd {

// Parameters and gradients in memory of a caller's, who keeps it while this lives. Each rank of the
// group holds all of every parameter.
class BufferParameters : public ParameterSource {
 public:
  // Arguments as of nxd_ddp_create_buffers; INVALID_ARGUMENT says which one was not as expected.
  BufferParameters(std::shared_ptr<Context> context, std::shared_ptr<ProcessGroup> group,
                   const char* const* names, DLTensor* const* params, DLTensor* const* grads,
                   size_t n);

  // Takes other memory for a parameter, its gradient or both: null leaves one as it is.
  void rebind(size_t index, const DLTensor* param, const DLTensor* grad);

  size_t size() const override { return infos_.size(); }
  const ParameterInfo& info(size_t index) const override { return infos_[index]; }
  ParameterBuffers buffers(size_t index) override { return buffers_[index]; }
  void make_zero_gradient(size_t index) override;
  void value_changed(size_t index) override { replaced_[index] = 0; }
  bool value_was_replaced(size_t index) override { return replaced_[index] != 0; }

  void mark_partial(size_t index) override { partial_steps_[index] = context_->step(); }
  std::string why_partial() const override;
  void mark_reloaded();

  std::string why_no_clipping() const override;
  const OptimizerGroups& groups() const override { return groups_; }
  bool plain_kernels() const override { return context_->plain_kernels(); }
  uint64_t seed() const override { return context_->seed(); }
  int64_t step() const override { return context_->step(); }
  void advance_step() override { context_->set_step(context_->step() + 1, 0); }
  void check_usable() const override { context_->check_usable(); }

 private:
  void add(const std::string& name, const DLTensor* param, const DLTensor* grad, size_t index);

  std::shared_ptr<Context> context_;
  OptimizerGroups groups_;
  std::vector<ParameterInfo> infos_;
  std::vector<ParameterBuffers> buffers_;
  std::vector<char> replaced_;
  std::vector<int64_t> partial_steps_;  // the step whose end broke off; -1 for none
};

}  // namespace nxd
