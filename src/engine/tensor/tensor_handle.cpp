#include "engine/tensor/tensor_handle.h"

#include <memory>

namespace nxd {

std::vector<at::Tensor> unwrap_all(nxd_tensor_t* const* tensors, size_t count, const char* name) {
  check_argument(tensors || count == 0, name, ": expected ", count, " tensors, got NULL");
  check_argument(count <= static_cast<size_t>(PTRDIFF_MAX) / sizeof *tensors, name, ": ", count,
                 " tensors do not fit in memory");
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    check_argument(tensors[i], name, "[", i, "]: expected a tensor, got NULL");
    out.push_back(unwrap(tensors[i], name));
  }
  return out;
}

void wrap_all(const std::vector<at::Tensor>& tensors, nxd_tensor_t** out) {
  std::vector<std::unique_ptr<nxd_tensor_t>> handles(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) handles[i].reset(wrap(tensors[i]));
  }
  for (size_t i = 0; i < tensors.size(); ++i) out[i] = handles[i].release();
}

}  // namespace nxd
