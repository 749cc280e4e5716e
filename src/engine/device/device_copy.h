#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace nxd {

// Values of a tensor in the memory of a plug-in's device.
class DeviceCopy {
 public:
  DeviceCopy() = default;
  virtual ~DeviceCopy() = default;
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  // Writes them to a tensor on the CPU of that shape.
  virtual void copy_to(at::Tensor& host) const = 0;
};
using DeviceCopyPtr = std::shared_ptr<DeviceCopy>;

// The functions here are for tensors on the CPU that hold the values of device xla. Such a tensor
// may have a copy on the plug-in's device, and the copy alone may be up to date: then its own
// memory is written when the host wants to read it. Whatever leaves the recorded device passes
// on_host().

// True of a dense tensor that has all of its memory to itself, of ATen's allocator or the library's
// pool, or that over_shared_memory() has made: nothing writes there behind the copy's back.
bool may_have_device_copy(const at::Tensor& tensor);
// A tensor over memory of somebody who calls on_host() before he reads or writes it himself.
at::Tensor over_shared_memory(void* memory, std::shared_ptr<void> owner, at::IntArrayRef sizes,
                              at::ScalarType dtype);
// Gives it a copy, in place of one that it had. is_newer: the tensor's memory is out of date.
void set_device_copy(const at::Tensor& tensor, DeviceCopyPtr copy, bool is_newer);
// Null where there is none.
DeviceCopyPtr device_copy_of(const at::Tensor& tensor);
// A program has taken the copy's memory, and has failed. Values that the copy alone had are NaN
// from now on, or 0 where the dtype has none.
void lose_device_copy(const at::Tensor& tensor);

// Brings the memory up to date, for a read.
void read_from_device(const at::Tensor& tensor);
// The same for the host to write there, too: the copy is let go of. The tensor may be undefined.
const at::Tensor& on_host(const at::Tensor& tensor);

}  // namespace nxd
