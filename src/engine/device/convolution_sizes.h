#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace nxd {

// The sizes of the result of convolution(input, weight, bias, stride, padding, dilation,
// transposed, output_padding, groups); what _convolution takes behind them says how, not what.
// INVALID_ARGUMENT where these do not fit one another.
std::vector<int64_t> convolution_sizes(const std::vector<c10::IValue>& arguments);

}  // namespace nxd
