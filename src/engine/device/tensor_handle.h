#pragma once

#include <ATen/core/Tensor.h>

#include "nxd.h"

// The struct behind nxd_tensor_t. It lies this low because callbacks of the caller's, which
// functions and modules call, see tensors through it.
struct nxd_tensor {
  at::Tensor value;
};
