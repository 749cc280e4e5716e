#include "engine/tensor/dtype_map.h"

#include "engine/device/device_tensor.h"
#include "engine/stablehlo/device_backend.h"

namespace nxd {

at::Device to_device(nxd_device_t device) {
  switch (device) {
    case NXD_DEVICE_CPU: return at::kCPU;
    case NXD_DEVICE_META: return at::kMeta;
    case NXD_DEVICE_XLA: use_xla_device(); return at::Device(kRecordedDeviceType, 0);
    case NXD_DEVICE_NEURON:
      fail(NXD_ERROR_UNSUPPORTED,
           "device: NXD_DEVICE_NEURON holds no tensors; Neuron's plug-in runs ",
           "NXD_DEVICE_XLA, which nxd_get_device gives");
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "device: expected an NXD_DEVICE_*, got ", device);
  }
}

nxd_device_t from_device(at::Device device) {
  switch (device.type()) {
    case at::kCPU: return NXD_DEVICE_CPU;
    case at::kMeta: return NXD_DEVICE_META;
    case kRecordedDeviceType: return NXD_DEVICE_XLA;
    default:
      fail(NXD_ERROR_UNSUPPORTED, "the tensor's device ", device.str(), " has no NXD_DEVICE_*");
  }
}

}  // namespace nxd
