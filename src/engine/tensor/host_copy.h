#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// The largest number of dimensions libtorch's kernels handle.
inline constexpr int kMaxDimensions = 64;

// Sizes from the caller: checked to be no less than 0 and to have a product that, in bytes of the
// dtype, fits int64, also without those that are 0.
std::vector<int64_t> checked_shape(const int64_t* shape, int32_t ndim, size_t element_size);

at::Tensor create_zeros(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype, nxd_device_t device);
at::Tensor create_from_data(const void* data, size_t bytes, const int64_t* shape, int32_t ndim,
                            nxd_dtype_t dtype);
// The tensor that make fills from the host's memory. In a trace every later run of the graph gets a
// new tensor of the same values.
at::Tensor host_values(const std::function<at::Tensor()>& make);

// Fails with UNSUPPORTED, naming what is asked for, unless the elements lie in host memory where
// sizes and strides say.
void check_host_memory(const at::Tensor& tensor, const char* what);

// The tensor on another device, or itself; recorded by autograd.
at::Tensor moved_to(const at::Tensor& tensor, nxd_device_t device);

// Between a tensor and a host buffer in C order, of any alignment.
void copy_to_host(const at::Tensor& tensor, void* buffer, size_t bytes);
void copy_from_host(at::Tensor& tensor, const void* buffer, size_t bytes);

// The one element as a double.
double item_of(const at::Tensor& tensor);

// A byte other than 0 and 1 is no value of C++'s bool: makes every true a 1.
void normalise_bools(at::Tensor& contiguous);

}  // namespace nxd
