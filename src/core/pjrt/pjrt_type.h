#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// Dtype and shape of an array, in the order of rows.
struct PjrtType {
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  std::vector<int64_t> shape;

  // INVALID_ARGUMENT for a dtype that is none, a negative size, or more than memory can have.
  size_t bytes() const;
};

// PJRT's number of a dtype; INVALID_ARGUMENT for a value that is no dtype.
int pjrt_element_type(nxd_dtype_t dtype);
// NXD_DTYPE_INVALID for types that have no dtype, such as u32.
nxd_dtype_t dtype_of_pjrt_element(int type) noexcept;

}  // namespace nxd
