#include "engine/device/convolution_sizes.h"

#include <ATen/core/Tensor.h>

#include "core/base/error.h"

namespace nxd {
namespace {

int64_t cyclic(const std::vector<int64_t>& list, size_t index) {
  return list.size() == 1 ? list[0] : list[index];
}

// A number for all dimensions of space, or one for each.
std::vector<int64_t> numbers_of_space(const c10::IValue& given, const char* name, int64_t least,
                                      const at::Tensor& x) {
  auto list = given.toIntVector();
  const int64_t count = static_cast<int64_t>(list.size()), space = x.dim() - 2;
  check_argument(count == 1 || count == space, "convolution: ", name, ": expected 1 number or ",
                 space, ", got ", count);
  for (const int64_t number : list) {
    check_argument(number >= least, "convolution: ", name, ": expected ", least, " or more, got ",
                   number);
  }
  return list;
}

}  // namespace

std::vector<int64_t> convolution_sizes(const std::vector<c10::IValue>& arguments) {
  const at::Tensor x = arguments[0].toTensor(), weight = arguments[1].toTensor();
  const bool transposed = arguments[6].toBool();
  const int64_t groups = arguments[8].toInt();
  check_argument(x.dim() == weight.dim() && x.dim() >= 3,
                 "convolution: expected an input and a weight of as many dimensions, 3 or more, "
                 "got shapes ",
                 x.sizes(), " and ", weight.sizes());
  const auto stride = numbers_of_space(arguments[3], "stride", 1, x),
             padding = numbers_of_space(arguments[4], "padding", 0, x),
             dilation = numbers_of_space(arguments[5], "dilation", 1, x),
             more = numbers_of_space(arguments[7], "output_padding", 0, x);
  check_argument(x.size(1) == (transposed ? weight.size(0) : weight.size(1) * groups),
                 "convolution: the input's ", x.size(1), " channels do not fit the weight, ",
                 weight.sizes(), " in ", groups, " groups");
  std::vector<int64_t> sizes{x.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 2; i < x.dim(); ++i) {
    const auto at = static_cast<size_t>(i - 2);
    const int64_t kernel = cyclic(dilation, at) * (weight.size(i) - 1) + 1;
    const int64_t pad = 2 * cyclic(padding, at), step = cyclic(stride, at);
    sizes.push_back(transposed ? (x.size(i) - 1) * step - pad + kernel + cyclic(more, at)
                               : (x.size(i) + pad - kernel) / step + 1);
    check_argument(transposed ? sizes.back() >= 0 : x.size(i) + pad >= kernel,
                   "convolution: the kernel is larger than the input, ", x.sizes());
  }
  return sizes;
}

}  // namespace nxd
