#include "engine/layers/random_values.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/layout/shard_fill.h"
#include "engine/layers/dropout.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

// The values have F32, or F64 if that is asked for.
template <class Fill>
at::Tensor filled(std::vector<int64_t> sizes, at::ScalarType dtype, const Fill& fill) {
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor values = pooled_empty(sizes, wide);
  fill(ShardSpec::replicated(std::move(sizes)), to_nxd_dtype(wide), values.data_ptr());
  return values;
}

// The largest value of a 16-bit float below a bound, as core's fill_uniform has it for wider ones:
// the bound where low is as large.
at::Tensor last_below(double high, double low, at::ScalarType dtype) {
  at::Tensor last = at::full({}, high, dtype);
  if (at::full({}, low, dtype).item<double>() >= last.item<double>()) return last;
  const bool is_positive = last.item<double>() > 0, is_zero = last.item<double>() == 0;
  auto& bits = *static_cast<uint16_t*>(last.data_ptr());
  bits = static_cast<uint16_t>(is_zero ? 0x8001 : is_positive ? bits - 1 : bits + 1);
  return last;
}

}  // namespace

at::Tensor uniform_values(const RandomSite& site, std::vector<int64_t> sizes, at::ScalarType dtype,
                          double low, double high) {
  RandomSite::check_uniform(to_nxd_dtype(dtype), low, high);
  const at::Tensor wide =
      filled(std::move(sizes), dtype, [&](const ShardSpec& spec, nxd_dtype_t own, void* out) {
        fill_uniform(site, spec, own, out, low, high);
      });
  if (wide.scalar_type() == dtype) return wide;
  const at::Tensor values = wide.to(dtype);
  return at::where(values < high, values, last_below(high, low, dtype));
}

at::Tensor normal_values(const RandomSite& site, std::vector<int64_t> sizes, at::ScalarType dtype,
                         double mean, double deviation) {
  RandomSite::check_normal(to_nxd_dtype(dtype), mean, deviation);
  return filled(std::move(sizes), dtype,
                [&](const ShardSpec& spec, nxd_dtype_t own, void* out) {
                  fill_normal(site, spec, own, out, mean, deviation);
                })
      .to(dtype);
}

at::Tensor bernoulli_values(const RandomSite& site, std::vector<int64_t> sizes,
                            at::ScalarType dtype, double probability) {
  // In F32 the factor of a small probability is finite too.
  return dropout_factors(site, std::move(sizes), 1 - probability, at::kFloat).ne(0).to(dtype);
}

}  // namespace nxd
