#pragma once

// libtorch's headers take longer to parse than all of ours: every source of the engine shares them.
// ATen/dlpack.h must never come in here: it has the include guard of nxd/dlpack.h.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
