#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "engine/device/recorded_node.h"
#include "engine/device/recording.h"

namespace nxd {

// Takes the place of an operator on tensors of the device: records it, or runs it on the CPU if it
// cannot be recorded.
void record_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// In its scope operators of this thread take tensors of the CPU beside those of the device, as
// inputs of the graph; elsewhere those without dimensions alone.
class HostTensorScope {
 public:
  HostTensorScope();
  ~HostTensorScope();
  HostTensorScope(const HostTensorScope&) = delete;
  HostTensorScope& operator=(const HostTensorScope&) = delete;

 private:
  const bool outer_;
};

// In its scope an operator of this thread writes to its first argument in place. Its counterpart
// that writes nothing is recorded for it, and libtorch does not see that the result of some, such
// as masked_fill_, has other sizes than the tensor, or a wider dtype. Such a call is rejected
// before anything changes.
class RecordedWrite {
 public:
  RecordedWrite(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  ~RecordedWrite();
  RecordedWrite(const RecordedWrite&) = delete;
  RecordedWrite& operator=(const RecordedWrite&) = delete;

  void check(const std::string& recorded, const at::Tensor& result) const;

 private:
  std::string counterpart_{};  // empty: nothing is checked
  std::vector<int64_t> sizes_{};
  c10::optional<at::ScalarType> dtype_{};  // empty: every dtype fits
  const RecordedWrite* outer_;
};

// A function of the library's own, or of a caller's, that a graph calls as one node.
struct RecordedCall {
  const char* name;
  // All that decides on the results beside the inputs' shapes, and does not change from one step to
  // the next. Everything else that the function captures is an input of the graph.
  std::string attributes{};
  bool is_effect = false;             // see RecordedOperator
  bool is_alone = false;              // the same
  std::vector<at::Tensor> results{};  // shapes and dtypes, on the meta device
  // For each result the input, by its place among those given, that the function writes it to, or
  // -1; empty: none. Nothing else may need that input's value later but calls recorded before.
  std::vector<int> overwrites{};
  // See RecordedNode.
  std::vector<RecordedExchange> exchanges{};
  ReplayFunction function{};
  ValueCheck check{};
};

// The tensor's value becomes that of another, which this thread has recorded and nothing else has.
void take_recorded_value(const at::Tensor& tensor, const DeviceValuePtr& from);

// Records the call; gives its results, on the device. Not seen by autograd.
std::vector<at::Tensor> record_call(RecordedCall call, const std::vector<at::Tensor>& inputs);
// The same without tensors around the values, which cost more than the call; null: undefined.
DeviceValues record_values(RecordedCall call, const std::vector<DeviceValuePtr>& inputs);

// A number that a kernel's results follow from.
struct KernelParameter {
  template <class Number>
  KernelParameter(const char* text, Number number)
      : name(text), value(static_cast<double>(number)) {}

  const char* name;
  double value;
};
using KernelParameters = c10::SmallVector<KernelParameter, 8>;

// Makes a kernel of its type, which self points to, ready for a graph.
struct KernelMaker {
  std::vector<at::Tensor> (*results)(const void* self, const std::vector<at::Tensor>& inputs);
  ReplayFunction (*function)(const void* self);
};

// Records a call of a kernel (kernel_call.h). Calls with the same parameters and shapes are made
// ready once.
std::vector<at::Tensor> record_kernel(const char* name, const KernelParameters& parameters,
                                      const void* self, const KernelMaker& make,
                                      const std::vector<at::Tensor>& inputs);

}  // namespace nxd
