#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/pipeline/buffer_pool.h"
#include "core/pipeline/pipeline_stages.h"

namespace nxd {

// Stages that a caller computes, over buffers. Outputs and gradients of inputs are made here, for
// the callbacks to fill; inputs are kept until the last task of their microbatch.
class CallbackStages : public PipelineStages {
 public:
  using Values = std::vector<std::vector<PipelineValue>>;  // of each chunk

  // group: that outputs are sent over. The callbacks' destroy is not called before own_user_data().
  CallbackStages(const PipelineShape& shape, std::shared_ptr<ProcessGroup> group, Values inputs,
                 Values outputs, const nxd_pp_stage_callbacks_t& callbacks);
  ~CallbackStages() override;
  void own_user_data() noexcept { owns_user_data_ = true; }

  // Sum of the last run's losses by their weights, in the order of the microbatches.
  double loss() const;

  const std::vector<PipelineValue>& inputs(int chunk) const override {
    return inputs_[static_cast<size_t>(chunk)];
  }
  const std::vector<PipelineValue>& outputs(int chunk) const override {
    return outputs_[static_cast<size_t>(chunk)];
  }
  bool splits_backward() const override { return callbacks_.backward_input != nullptr; }
  void begin_run(bool training) override;
  void end_run(bool failed) noexcept override;
  PipelineBuffers forward(const TaskPlace& place, const PipelineBuffers& inputs) override;
  PipelineBuffers backward(const TaskPlace& place, const PipelineBuffers& grad_outputs,
                           bool whole) override;
  void weight_gradients(const TaskPlace& place) override;

 private:
  // Buffers that a microbatch keeps in a chunk.
  struct Kept {
    PipelineBuffers inputs, grad_outputs;
  };
  using Key = std::pair<int, int>;  // chunk, microbatch
  static Key key(const TaskPlace& place) { return {place.chunk, place.microbatch}; }

  nxd_pp_call_t call_of(const TaskPlace& place) const;
  bool is_last_stage(const TaskPlace& place) const;

  const PipelineShape shape_;
  const std::shared_ptr<ProcessGroup> group_;
  const Values inputs_, outputs_;
  const nxd_pp_stage_callbacks_t callbacks_;
  bool owns_user_data_ = false;

  BufferPool pool_;
  bool training_ = false;
  std::map<Key, Kept> kept_;
  std::vector<double> losses_;  // by microbatch
};

}  // namespace nxd
