# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/dlpack.h."""

from __future__ import annotations

NAMES = """
typedef struct DLPackVersion DLPackVersion;
typedef struct DLDevice DLDevice;
typedef struct DLDataType DLDataType;
typedef struct DLTensor DLTensor;
typedef struct DLManagedTensor DLManagedTensor;
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;
"""

TYPES = """
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
};
"""
