#include "core/layout/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/dtype.h"
#include "core/layout/shard_fill.h"

namespace nxd {
namespace {

// Sets the elements of one index of dimension 0 to zero, where this shard has it.
void zero_row_of(const ShardSpec& spec, int64_t whole_row, size_t element, void* out) {
  const int64_t rows = spec.local_shape().empty() ? 0 : spec.local_shape()[0];
  if (rows == 0) return;
  const int64_t first = spec.dim() == 0 ? spec.ranges().front().begin : 0;
  const int64_t row = whole_row - first;
  if (row < 0 || row >= rows) return;
  const auto bytes = static_cast<size_t>(spec.local_size() / rows) * element;
  std::memset(static_cast<char*>(out) + static_cast<size_t>(row) * bytes, 0, bytes);
}

}  // namespace

void Initializer::check_range(const std::string& what, nxd_dtype_t dtype) const {
  try {
    switch (kind) {
      case Kind::kConstant:
        check_argument(std::abs(a) <= dtype_largest(dtype), "constant: expected a value that ",
                       dtype_name(dtype), " has, got ", a);
        break;
      case Kind::kNormal: RandomSite::check_normal(dtype, a, b); break;
      case Kind::kUniform: RandomSite::check_uniform(dtype, a, b); break;
    }
  } catch (const Error& error) {
    throw Error(error.status(), what + ": initial values: " + error.what(), error.context());
  }
}

void Initializer::fill(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype,
                       void* out) const {
  switch (kind) {
    case Kind::kConstant: fill_constant(spec, dtype, out, a); break;
    case Kind::kNormal: fill_normal(site, spec, dtype, out, a, b); break;
    case Kind::kUniform: fill_uniform(site, spec, dtype, out, a, b); break;
  }
  if (zero_row >= 0) zero_row_of(spec, zero_row, dtype_size(dtype), out);
}

Initializer WeightInit::resolve(const Initializer& fallback, int64_t fan_in) const {
  check_argument(std::isfinite(a) && std::isfinite(b), "init_a, init_b: expected finite numbers");
  switch (kind) {
    case NXD_INIT_DEFAULT: return fallback;
    case NXD_INIT_CONSTANT: return Initializer::constant(a);
    case NXD_INIT_NORMAL:
      check_argument(b >= 0, "init_b: expected a standard deviation of at least 0, got ", b);
      return Initializer::normal(a, b);
    case NXD_INIT_UNIFORM:
      check_argument(a <= b, "init_a, init_b: expected a <= b, got ", a, " and ", b);
      return Initializer::uniform(a, b);
    case NXD_INIT_KAIMING_UNIFORM: {
      const double bound = std::sqrt(6.0 / ((1.0 + a * a) * static_cast<double>(fan_in)));
      return Initializer::uniform(-bound, bound);
    }
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "init: expected an NXD_INIT_*, got ", kind);
  }
}

}  // namespace nxd
