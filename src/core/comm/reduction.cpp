#include "core/comm/reduction.h"

#include <cstring>

#include "core/base/dtype.h"
#include "core/kernels/reduce.h"

namespace nxd {

void reduce_in_order(const std::vector<const void*>& inputs, void* out, size_t count,
                     nxd_dtype_t dtype, nxd_reduce_t reduce) {
  void* const outputs[] = {out};
  kernels::reduce_to_all(inputs.data(), inputs.size(), outputs, 1, count, dtype, reduce);
}

void reduce_to_all(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  kernels::reduce_to_all(inputs.data(), inputs.size(), outputs.data(), outputs.size(), count, dtype,
                         reduce);
}

nxd_dtype_t sum_dtype(nxd_dtype_t dtype) {
  return dtype_is_16_bit_float(dtype) ? NXD_DTYPE_F32 : dtype;
}

nxd_reduce_t step_of(nxd_reduce_t reduce) {
  return reduce == NXD_REDUCE_AVG ? NXD_REDUCE_SUM : reduce;
}

void reduce_in_f32(const std::vector<const void*>& inputs, void* sums, size_t count,
                   nxd_dtype_t dtype, nxd_reduce_t reduce) {
  kernels::reduce_to_f32(inputs.data(), inputs.size(), static_cast<float*>(sums), count, dtype,
                         reduce);
}

void finish_sums(const void* sums, void* out, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce,
                 size_t n) {
  const bool averages = reduce == NXD_REDUCE_AVG;
  if (sum_dtype(dtype) == NXD_DTYPE_F32) {
    kernels::round_from_f32(static_cast<const float*>(sums), out, count, dtype,
                            averages ? static_cast<float>(n) : 1.0F);
  } else if (averages) {
    for (size_t i = 0; i < count; ++i) {
      static_cast<double*>(out)[i] = static_cast<const double*>(sums)[i] / static_cast<double>(n);
    }
  } else if (out != sums) {
    std::memcpy(out, sums, count * dtype_size(dtype));
  }
}

const char* reduce_name(nxd_reduce_t reduce) noexcept {
  switch (reduce) {
    case NXD_REDUCE_SUM: return "sum";
    case NXD_REDUCE_AVG: return "avg";
    case NXD_REDUCE_MAX: return "max";
    case NXD_REDUCE_MIN: return "min";
    case NXD_REDUCE_PROD: return "prod";
    default: return "invalid";
  }
}

}  // namespace nxd
