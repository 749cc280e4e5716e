#include "core/pipeline/callback_stages.h"

#include <limits>

#include "core/base/dtype.h"
#include "core/base/last_error.h"
#include "nxd/dlpack.h"

namespace nxd {
namespace {

DLDataType dl_dtype(nxd_dtype_t dtype) {
  const auto bits = static_cast<uint8_t>(8 * dtype_size(dtype));
  if (dtype == NXD_DTYPE_BF16) return {kDLBfloat, bits, 1};
  if (dtype_is_float(dtype)) return {kDLFloat, bits, 1};
  if (dtype == NXD_DTYPE_BOOL) return {kDLBool, bits, 1};
  if (dtype == NXD_DTYPE_U8) return {kDLUInt, bits, 1};
  return {kDLInt, bits, 1};
}

// Tensors over buffers, as callbacks take them: null where there is no buffer.
class Tensors {
 public:
  Tensors(const std::vector<PipelineValue>& values, const PipelineBuffers& buffers)
      : tensors_(values.size()), pointers_(values.size()) {
    for (size_t i = 0; i < values.size() && i < buffers.size(); ++i) {
      if (!buffers[i].data) continue;
      const PipelineValue& value = values[i];
      // DLPack has no word for sizes that are only read.
      tensors_[i] = {buffers[i].data,
                     {kDLCPU, 0},
                     static_cast<int32_t>(value.shape.size()),
                     dl_dtype(value.dtype),
                     const_cast<int64_t*>(value.shape.data()),
                     nullptr,
                     0};
      pointers_[i] = &tensors_[i];
    }
  }
  DLTensor* const* data() const { return pointers_.data(); }

 private:
  std::vector<DLTensor> tensors_;
  std::vector<DLTensor*> pointers_;
};

PipelineBuffers make_buffers(BufferPool& pool, const std::vector<PipelineValue>& values,
                             bool gradients) {
  PipelineBuffers buffers(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (gradients && !values[i].needs_grad) continue;
    buffers[i] = pool.take(values[i].count() * dtype_size(values[i].dtype));
  }
  return buffers;
}

}  // namespace

CallbackStages::CallbackStages(const PipelineShape& shape, std::shared_ptr<ProcessGroup> group,
                               Values inputs, Values outputs,
                               const nxd_pp_stage_callbacks_t& callbacks)
    : shape_(shape),
      group_(std::move(group)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      callbacks_(callbacks),
      pool_(group_),
      losses_(static_cast<size_t>(shape.microbatches)) {}

CallbackStages::~CallbackStages() {
  if (!owns_user_data_ || !callbacks_.destroy) return;
  const CallersFloatEnvironment environment;
  callbacks_.destroy(callbacks_.user_data);
}

double CallbackStages::loss() const {
  double sum = 0;
  for (const double loss : losses_) sum += loss / shape_.microbatches;
  return sum;
}

nxd_pp_call_t CallbackStages::call_of(const TaskPlace& place) const {
  return {shape_.stage_of(group_->rank(), place.chunk), place.chunk, place.microbatch,
          place.last ? 1 : 0, 1.0 / shape_.microbatches};
}

bool CallbackStages::is_last_stage(const TaskPlace& place) const {
  return shape_.stage_of(group_->rank(), place.chunk) + 1 == shape_.stages();
}

void CallbackStages::begin_run(bool training) {
  training_ = training;
  // A loss that no callback sets is none.
  losses_.assign(losses_.size(), std::numeric_limits<double>::quiet_NaN());
}

void CallbackStages::end_run(bool failed) noexcept {
  static_cast<void>(failed);
  kept_.clear();
}

PipelineBuffers CallbackStages::forward(const TaskPlace& place, const PipelineBuffers& inputs) {
  const nxd_pp_call_t call = call_of(place);
  PipelineBuffers given = make_buffers(pool_, outputs(place.chunk), false);
  const Tensors in(this->inputs(place.chunk), inputs), out(outputs(place.chunk), given);
  double* loss = is_last_stage(place) ? &losses_[static_cast<size_t>(place.microbatch)] : nullptr;
  CallbackWatch().run(
      [&] { return callbacks_.forward(&call, in.data(), out.data(), loss, callbacks_.user_data); },
      "the forward callback");
  if (training_) kept_[key(place)].inputs = inputs;
  return given;
}

PipelineBuffers CallbackStages::backward(const TaskPlace& place,
                                         const PipelineBuffers& grad_outputs, bool whole) {
  const nxd_pp_call_t call = call_of(place);
  Kept& kept = kept_[key(place)];
  PipelineBuffers given = make_buffers(pool_, inputs(place.chunk), true);
  const Tensors in(inputs(place.chunk), kept.inputs), of_out(outputs(place.chunk), grad_outputs),
      of_in(inputs(place.chunk), given);
  const auto callback = whole ? callbacks_.backward : callbacks_.backward_input;
  CallbackWatch().run(
      [&] { return callback(&call, in.data(), of_out.data(), of_in.data(), callbacks_.user_data); },
      whole ? "the backward callback" : "the backward_input callback");
  if (whole) {
    kept_.erase(key(place));
  } else {
    kept.grad_outputs = grad_outputs;
  }
  return given;
}

void CallbackStages::weight_gradients(const TaskPlace& place) {
  const nxd_pp_call_t call = call_of(place);
  const Kept& kept = kept_[key(place)];
  const Tensors in(inputs(place.chunk), kept.inputs),
      of_out(outputs(place.chunk), kept.grad_outputs);
  CallbackWatch().run(
      [&] {
        return callbacks_.backward_weight(&call, in.data(), of_out.data(), callbacks_.user_data);
      },
      "the backward_weight callback");
  kept_.erase(key(place));
}

}  // namespace nxd
