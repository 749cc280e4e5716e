#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/optim/step_recorder.h"
#include "engine/device/recording.h"
#include "engine/training/module_parameters.h"

namespace nxd {

// Makes the end of a step part of the recorded graph, where parameters are on device XLA. Values
// and states keep their memory: the graph overwrites it.
class RecordedStep final : public StepRecorder {
 public:
  explicit RecordedStep(ModuleParameters& source) : source_(source) {}

  bool can_record() const override;
  std::optional<uint64_t> rounding_seed() const override;
  const void* value(size_t parameter) override;
  void finish(const FinishOptions& options, const std::vector<char>& present,
              const BucketPlan* plan) override;
  void update(RecordedUpdate given) override;
  void gather() override;
  bool has_ended() const override;
  GradientFactor end() override;
  bool has_lost_values() const override;
  void forget_states() override;

 private:
  struct Gradient {
    size_t parameter;
    at::Tensor* tensor;  // which is replaced by what the ranks have together
  };
  // A span of a parameter that begins at an element.
  using Place = std::pair<size_t, int64_t>;

  std::vector<Gradient> gradients(const std::vector<char>& present) const;
  void scatter_bucket(size_t bucket, nxd_reduce_t reduce, std::vector<Gradient>& own);
  void gather_bucket(size_t bucket);
  bool has_present(size_t bucket) const;
  // A part of a parameter's values, flat.
  at::Tensor span_of(size_t parameter, int64_t begin, int64_t count) const;
  // This rank's part of the values; all of them without a plan.
  DeviceValuePtr values_of(const RecordedUpdate& update) const;
  void sum_over_data(const std::vector<Gradient>& gradients, nxd_reduce_t reduce) const;
  void sum_over_gradient_groups(const std::vector<Gradient>& gradients) const;
  DeviceValuePtr joined_norm_of(const std::vector<Gradient>& gradients, double type) const;
  // The state or master in the memory, of the shape of values.
  DeviceValuePtr state_at(void* memory, const RecordedUpdate& update, const DeviceValue& values);
  DeviceValuePtr numbers(const RecordedUpdate& update);

  ModuleParameters& source_;
  const BucketPlan* plan_ = nullptr;
  std::vector<char> present_;
  std::map<Place, at::Tensor> parts_;                             // of this step's gradients
  std::map<Place, DeviceValuePtr> updated_;                       // of this step's values
  std::map<const void*, DeviceValuePtr> states_;                  // by their memory
  std::map<std::pair<size_t, int64_t>, DeviceValuePtr> numbers_;  // of this step, by group and step
  DeviceValuePtr norm_, factor_, finite_;  // of the step that was recorded last
  bool checks_finite_ = true;
};

}  // namespace nxd
