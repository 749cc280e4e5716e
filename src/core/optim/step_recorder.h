#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/optim/bucket_plan.h"
#include "core/optim/gradient_norm.h"
#include "core/optim/update_rule.h"

namespace nxd {

// Where an update's values lie when it runs; see UpdateSpan.
struct UpdateMemory {
  void* param = nullptr;
  const void* grad = nullptr;
  void* const* states = nullptr;
  void* copy = nullptr;
  double grad_scale = 1;
};

// The update of a span of a parameter, to be run when its gradient is known.
struct RecordedUpdate {
  size_t parameter = 0;
  int64_t begin = 0, count = 0;  // the span
  UpdateForm form{};
  // RandomRows::numbers of the words that values are rounded by, where the form has their code.
  std::vector<int32_t> random{};
  size_t group = 0;  // of hyperparameters
  int64_t step = 1;
  nxd_dtype_t state_dtype = NXD_DTYPE_F32;
  // The recorder has the values from here on; the memory has them after forget_states().
  std::vector<void*> states{};
  void* master = nullptr;         // of state_dtype: the parameter becomes its copy; or null
  std::shared_ptr<void> owner{};  // keeps states and master
  std::function<void(const UpdateMemory&)> run{};
};

// Ends the steps of parameters whose gradients are not known yet: what it is asked for becomes part
// of the graph that computes them. Calls come from one thread.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  // False where values are on the host, or another thread's.
  virtual bool can_record() const = 0;
  // The seed of a device that rounds whatever it computes in bf16 stochastically, where updates
  // have to do so by themselves; else none.
  virtual std::optional<uint64_t> rounding_seed() const = 0;
  // The parameter's values as they are, for reading; what was recorded runs if they are not known.
  virtual const void* value(size_t parameter) = 0;
  // First: completes the gradients of the parameters that have one, and takes their norm. With a
  // plan each data-parallel rank gets its part of every bucket, and nothing else; the plan is the
  // same until the next step.
  virtual void finish(const FinishOptions& options, const std::vector<char>& present,
                      const BucketPlan* plan) = 0;
  // Then: updates a span, unless the norm is such that nothing is to be updated.
  virtual void update(RecordedUpdate update) = 0;
  // Then, with a plan: gives every rank the parts of all.
  virtual void gather() = 0;

  // The last step's graph has run, or has failed and somebody was told. Waits if it is running.
  virtual bool has_ended() const = 0;
  // Its norm. Runs the graph if it has not run; throws its error.
  virtual GradientFactor end() = 0;
  // The graph failed when it had begun to update: values are of no step.
  virtual bool has_lost_values() const = 0;
  // The host is about to read the memory of states and masters, to write there, or to replace it,
  // when the last step has ended.
  virtual void forget_states() = 0;
};

}  // namespace nxd
