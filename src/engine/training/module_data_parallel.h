#pragma once

#include <memory>
#include <vector>

#include "core/optim/data_parallel.h"
#include "engine/training/module_parameters.h"

namespace nxd {

// Parameters of a tree whose gradients, and with ZeRO stage 1 values, lie in buckets.
class BucketedParameters : public ModuleParameters {
 public:
  BucketedParameters(std::shared_ptr<Module> root, bool fp32_grads);

  // Gradients, and with a gather values, live in their buckets from now on.
  void set_buckets(std::shared_ptr<GradientReducer> reducer,
                   std::shared_ptr<ParameterGather> gather) {
    reducer_ = std::move(reducer);
    gather_ = std::move(gather);
  }
  // The place of a value in the gather's buckets; it keeps the bucket alive.
  at::Tensor value_view(size_t index) const;
  // F32 gradients of a BF16 parameter.
  bool is_wide(size_t index) const { return infos_[index].grad_dtype != infos_[index].dtype; }
  // Moves a gradient that a backward pass, or other code, has left to its place in the bucket:
  // F32 gradients of BF16 parameters are added to what lies there.
  void take_gradient(size_t index);
  // On the recorded device gradients go to their places when buffers() is asked for them. Before, a
  // backward pass adds to the F32 gradients of BF16 parameters here.
  void record_gradient(size_t index);
  void narrow_gradient(size_t index);
  // The gradient is where it is to be, and has not been cleared.
  bool is_in_bucket(size_t index) const;
  // Makes the gradient a tensor of its own again, and forgets the buckets.
  void release_gradients();

  const ParameterInfo& info(size_t index) const override { return infos_[index]; }
  ParameterBuffers buffers(size_t index) override;
  at::Tensor& gradient(size_t index) override;
  std::optional<nxd_reduce_t> data_parallel_reduce() const override;
  void make_zero_gradient(size_t index) override;
  const OptimizerGroups& groups() const override { return groups_; }
  void advance_step() override;
  std::string why_reduced_elsewhere() const override { return ""; }  // it is their own ddp
  std::string why_other_layout() const override { return ""; }       // groups are kept with shards

 private:
  // A view of the gradient's place; it keeps the bucket alive.
  at::Tensor view(size_t index) const;
  void add_to_main_grad(size_t index);
  void place_main_grad(size_t index);
  // Runs what was recorded, and moves value and gradient to the buckets.
  void place_recorded(size_t index);

  std::vector<ParameterInfo> infos_;
  std::vector<char> lent_;  // frozen here, but not on a rank whose gradient it has zeros for
  OptimizerGroups groups_;
  std::shared_ptr<GradientReducer> reducer_;
  std::shared_ptr<ParameterGather> gather_;
};

// Data parallelism over a tree's trainable parameters. Hooks see gradients become complete, on the
// thread of the backward pass.
class ModuleDataParallel : public DataParallel {
 public:
  // See nxd_ddp_create. Collective over the data-parallel group, whose ranks all fail with one
  // whose options are none, as resolved says.
  ModuleDataParallel(const std::shared_ptr<Module>& root, const DataParallelOptions& options,
                     const Outcome& resolved = {});
  // Gives the tree its own gradients and values back.
  ~ModuleDataParallel() override;

  bool begin_run(bool is_rejected) noexcept override;
  void end_run() noexcept override;
  void reject_run(const char* why) noexcept override;

 private:
  void move_values();
  void set_hooks();
  void on_gradient(size_t index);
  bool reduces_in_passes() const;
  void release() noexcept;

  std::shared_ptr<BucketedParameters> parameters_;
  std::vector<char> hooked_;
};

}  // namespace nxd
