#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

#include "core/base/error.h"
#include "core/base/fork_stamp.h"

// A handle shares the tensor with every other handle on it.
struct nxd_tensor {
  at::Tensor value;
  nxd::ForkStamp stamp{};
};

namespace nxd {

inline at::Tensor& unwrap(nxd_tensor_t* tensor, const char* name) {
  check_argument(tensor, name, ": expected a tensor, got NULL");
  tensor->stamp.check(name);
  return tensor->value;
}

// The same where NULL is allowed, and gives an undefined tensor.
inline at::Tensor unwrap_optional(nxd_tensor_t* tensor, const char* name) {
  return tensor ? unwrap(tensor, name) : at::Tensor();
}

// An array of handles none of which may be NULL.
std::vector<at::Tensor> unwrap_all(nxd_tensor_t* const* tensors, size_t count, const char* name);

inline nxd_tensor_t* wrap(at::Tensor tensor) { return new nxd_tensor{std::move(tensor)}; }

// Fills an array of new handles, or leaves it as it is when one cannot be made. An undefined tensor
// becomes NULL.
void wrap_all(const std::vector<at::Tensor>& tensors, nxd_tensor_t** out);

}  // namespace nxd
