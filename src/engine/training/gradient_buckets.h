#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/comm/process_group.h"

namespace nxd {

// Reduces tensors in place over a group. Those of one dtype travel together, in buffers of a
// bounded size, in the order given; an element's sum does not depend on its buffer. All ranks give
// tensors of the same dtypes and sizes in the same order; each is dense and in C order.
void reduce_in_buckets(ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                       nxd_reduce_t reduce);

}  // namespace nxd
