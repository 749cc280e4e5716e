#include "core/pjrt/pjrt_type.h"

#include <cstdint>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/element_count.h"
#include "core/pjrt/pjrt_abi.h"

namespace nxd {
namespace {

constexpr std::pair<nxd_dtype_t, int> kPjrtElementTypes[] = {
    {NXD_DTYPE_F32, pjrt_abi::kF32},   {NXD_DTYPE_F64, pjrt_abi::kF64},
    {NXD_DTYPE_BF16, pjrt_abi::kBf16}, {NXD_DTYPE_F16, pjrt_abi::kF16},
    {NXD_DTYPE_I32, pjrt_abi::kS32},   {NXD_DTYPE_I64, pjrt_abi::kS64},
    {NXD_DTYPE_U8, pjrt_abi::kU8},     {NXD_DTYPE_I8, pjrt_abi::kS8},
    {NXD_DTYPE_I16, pjrt_abi::kS16},   {NXD_DTYPE_BOOL, pjrt_abi::kPred},
};

}  // namespace

size_t PjrtType::bytes() const {
  for (const int64_t size : shape) {
    check_argument(size >= 0, "shape: expected sizes of 0 or more, got ", size);
  }
  const auto count = element_count(shape, INT64_MAX / static_cast<int64_t>(dtype_size(dtype)));
  check_argument(count.has_value(), "shape: more bytes than memory can have");
  return static_cast<size_t>(*count) * dtype_size(dtype);
}

int pjrt_element_type(nxd_dtype_t dtype) {
  for (const auto& entry : kPjrtElementTypes) {
    if (entry.first == dtype) return entry.second;
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "dtype: expected an NXD_DTYPE_*, got ", dtype);
}

nxd_dtype_t dtype_of_pjrt_element(int type) noexcept {
  for (const auto& entry : kPjrtElementTypes) {
    if (entry.second == type) return entry.first;
  }
  return NXD_DTYPE_INVALID;
}

}  // namespace nxd
