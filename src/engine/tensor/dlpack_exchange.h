#pragma once

#include <ATen/ATen.h>

#include "core/base/error.h"

// libtorch's ATen/dlpack.h has the include guard of nxd/dlpack.h and an older content: neither it
// nor ATen/DLConvertor.h may be included in the engine.

namespace nxd {

// A copy of a borrowed tensor in C order; any strides, also negative ones, and any alignment.
at::Tensor copy_dltensor(const DLTensor& source);

// Tensors over the memory of a managed tensor, whose deleter runs with the storage's last user. On
// failure the deleter is not called.
at::Tensor import_dlpack(DLManagedTensor* managed);
at::Tensor import_dlpack(DLManagedTensorVersioned* managed);

// The tensor's memory, kept alive until the deleter is called, which may happen on any thread.
void export_dlpack(const at::Tensor& tensor, DLManagedTensor*& out);
void export_dlpack(const at::Tensor& tensor, DLManagedTensorVersioned*& out);

}  // namespace nxd
