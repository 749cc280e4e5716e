#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/device/recorder.h"
#include "engine/module/module.h"

// Code of a TorchScript file was written, or traced, on the CPU: it makes tensors there, and has
// constants there. In a run on another device they lie on that.
namespace nxd {

// The code asks for a device wherever it names one, or none, and for each constant with dimensions;
// one without mixes with both, and the host computes sizes with it.
// In a trace, where tensors have no device, code that asks a tensor for its own is told that of the
// outermost module's values.
void ask_for_devices(torch::jit::Graph& graph);

// The constants of one module's code on the device on which it runs. They are written to as the
// code's own would be.
class PlacedConstants {
 public:
  at::Tensor on(const at::Tensor& constant, at::Device device);

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> placed_;
};

// Where a module computes: where the values of its tree lie, else where an input lies. The CPU
// while tracing, and for values on the meta device. INVALID_ARGUMENT for an input elsewhere.
at::Device device_of_run(const Module& module, const std::vector<at::Tensor>& inputs);

// Where values of the tree lie; none of a tree without any, or with all on the meta device.
std::optional<at::Device> device_of_values(const Module& module);

// Where the code that this thread runs in a scope has its tensors. A trace is for any device: it
// makes tensors on the CPU, and whoever runs it moves them.
class ScriptDeviceScope {
 public:
  // values: where those of the module lie, of which only a trace asks.
  ScriptDeviceScope(at::Device device, std::optional<at::Device> values,
                    PlacedConstants& constants);
  ~ScriptDeviceScope();
  ScriptDeviceScope(const ScriptDeviceScope&) = delete;
  ScriptDeviceScope& operator=(const ScriptDeviceScope&) = delete;

  at::Device device() const { return device_; }
  at::Device device_of_values() const { return values_; }
  PlacedConstants& constants() const { return constants_; }

 private:
  const at::Device device_, values_;
  PlacedConstants& constants_;
  const HostTensorScope host_tensors_;  // what else the code has on the CPU
  ScriptDeviceScope* outer_;
};

}  // namespace nxd
