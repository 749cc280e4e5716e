#pragma once

#include <ATen/core/Tensor.h>

// Code of a program's own, in a library of its own, that knows libtorch and nothing of libnxd.
double read_beside_libnxd(const at::Tensor& x);
