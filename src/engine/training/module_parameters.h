#pragma once

#include <memory>
#include <set>
#include <vector>

#include "core/optim/parameter_source.h"
#include "engine/module/module.h"
#include "engine/module/module_tree.h"

namespace nxd {

// The parameters of a tree that are trainable when this is made, in the order of
// named_parameters(), named by their paths from the root. One that is frozen later has no gradient.
class ModuleParameters : public ParameterSource {
 public:
  explicit ModuleParameters(std::shared_ptr<Module> root);
  ~ModuleParameters() override;

  const std::shared_ptr<Module>& root() const { return root_; }
  Parameter& parameter(size_t index) const { return *slots_[index].parameter; }

  size_t size() const override { return slots_.size(); }
  const ParameterInfo& info(size_t index) const override { return slots_[index].info; }
  // A gradient that is sparse, or not in C order, is replaced by one that is neither.
  ParameterBuffers buffers(size_t index) override;
  const void* value(size_t index) override;
  bool has_gradient(size_t index) override;
  std::unique_ptr<StepRecorder> make_step_recorder() override;
  bool wants_parts_alike() const override;
  // INVALID_STATE unless the parameter has the values that this has been made for.
  void check_value(size_t index) const;
  // Wherever it is kept: the tensor's own, or another of other dtype.
  virtual at::Tensor& gradient(size_t index);
  // How data-parallel ranks reduce gradients, where that is not for a step to say.
  virtual std::optional<nxd_reduce_t> data_parallel_reduce() const { return std::nullopt; }
  void make_zero_gradient(size_t index) override;
  void value_changed(size_t index) override;
  uint64_t value_version(size_t index) override;
  void mark_partial(size_t index) override;
  std::string why_partial() const override;

  std::optional<std::vector<std::string>> names_of_model() const override;
  // Anew each time: a tree may be given further children.
  uint32_t options_digest() const override { return nxd::options_digest(*root_); }
  std::optional<int> mode_of_forwards() const override;
  // Groups of the layout, which may come and go; none on the only rank of a world without one.
  // INVALID_STATE on one of several ranks without a layout.
  const OptimizerGroups& groups() const override;
  bool plain_kernels() const override;
  uint64_t seed() const override;
  int64_t step() const override;
  void advance_step() override;
  void check_usable() const override;
  std::string why_reduced_elsewhere() const override;
  std::string why_other_layout() const override;

 private:
  struct Slot {
    std::shared_ptr<Parameter> parameter;
    ParameterInfo info;
    // Frozen here, but not on a rank whose gradient it has been given zeros for.
    bool lent_gradient = false;
  };

  Context& context() const { return *root_->context(); }
  // That of now; null on the only rank of a world without one.
  std::shared_ptr<const ParallelState> layout() const;
  void* dense_gradient(Slot& slot) const;

  std::shared_ptr<Module> root_;
  std::vector<Slot> slots_;
  std::set<const Parameter*> frozen_;  // of the root's, when this was made
  mutable OptimizerGroups groups_;
};

}  // namespace nxd
