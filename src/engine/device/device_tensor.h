#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "engine/device/recording.h"

namespace nxd {

// Tensors of device xla:0 are libtorch's functional wrappers around a tensor without memory, whose
// DeviceValue says what it is. The wrapper turns writes into new values, so that the recorder meets
// operators without side effects alone.
inline constexpr c10::DeviceType kRecordedDeviceType = c10::DeviceType::XLA;
inline constexpr c10::DispatchKey kRecordedKey = c10::DispatchKey::XLA;

// A tensor of the value, in a wrapper unless the calling operator makes one.
at::Tensor device_tensor(DeviceValuePtr value);
// The same without a wrapper.
at::Tensor plain_device_tensor(DeviceValuePtr value);
// True if it is in no wrapper.
bool is_plain(const at::Tensor& tensor);

// True if it is on the recorded device.
inline bool is_recorded(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kRecordedDeviceType;
}

// True if the wrapper of a tensor on the device takes its value from that of a base: for a view,
// also for one that autograd does not know, and while writes to the base are put off.
bool reads_a_base(const at::Tensor& tensor);

// The value of a tensor on the device, after the writes that the wrapper has put off.
DeviceValue& device_value(const at::Tensor& tensor);
inline DeviceValuePtr value_of(const at::Tensor& tensor) {
  return device_value(tensor).shared_from_this();
}
// The tensor becomes one of other sizes and another value. The data, dense and on the CPU, are its
// own from now on.
void set_device_value(const at::Tensor& tensor, at::Tensor data);
// Numbers that a graph takes as an input: double or int32_t.
template <class Number>
DeviceValuePtr vector_on_device(const std::vector<Number>& numbers);
// A tensor of the device over data as above.
at::Tensor on_recorded_device(at::Tensor data);

// The tensor itself, or the memory of its value on the device, which the caller may write to: what
// this thread has recorded runs first, an implicit sync for the reason.
at::Tensor host_memory(const at::Tensor& tensor, const std::string& reason);

}  // namespace nxd
