#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"

namespace nxd {

// A tensor in C order that goes from one stage to the next, in every microbatch alike.
struct PipelineValue {
  std::string name;
  std::vector<int64_t> shape;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  bool needs_grad = false;  // its gradient comes back

  size_t count() const {
    size_t product = 1;
    for (const int64_t size : shape) product *= static_cast<size_t>(size);
    return product;
  }
  bool operator==(const PipelineValue&) const = default;
};

// Memory of one such tensor. A holder of the owner may use it. data is null when there is no
// tensor; a tensor without elements has data.
struct PipelineBuffer {
  void* data = nullptr;
  std::shared_ptr<void> owner;
};
using PipelineBuffers = std::vector<PipelineBuffer>;

// The part of a task that is not in the schedule.
struct TaskPlace {
  int chunk = 0;
  int microbatch = 0;
  bool last = false;  // no later task of this run adds to the gradients of the chunk's parameters
};

// A rank's computations in its stages. All calls come from the thread that runs the pipeline; an
// exception ends the run.
class PipelineStages {
 public:
  virtual ~PipelineStages() = default;

  // Values from the stage before, and to the stage after. The same until reshaped.
  virtual const std::vector<PipelineValue>& inputs(int chunk) const = 0;
  virtual const std::vector<PipelineValue>& outputs(int chunk) const = 0;
  // True if backward passes can be made in two parts.
  virtual bool splits_backward() const = 0;

  virtual void begin_run(bool training) = 0;
  // After the last task, or, with failed, when a run has ended early: drop what it kept.
  virtual void end_run(bool failed) noexcept = 0;

  // One buffer for each output. The stages may keep the inputs' owners as long as they like; the
  // outputs are read until their owners are let go of.
  virtual PipelineBuffers forward(const TaskPlace& place, const PipelineBuffers& inputs) = 0;
  // Gradients of outputs (null where none is needed) to those of inputs, one buffer for each input
  // that needs one, null for others. whole: also those of the parameters; else
  // weight_gradients(place) follows.
  virtual PipelineBuffers backward(const TaskPlace& place, const PipelineBuffers& grad_outputs,
                                   bool whole) = 0;
  virtual void weight_gradients(const TaskPlace& place) = 0;
};

}  // namespace nxd
