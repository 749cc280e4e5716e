#pragma once

#include <string>

#include "core/base/philox.h"
#include "core/layout/shard_spec.h"

namespace nxd {

// Distribution that a weight starts from; bounds that depend on the layer are resolved already.
struct Initializer {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double a = 0;  // constant, mean or lower bound
  double b = 0;  // standard deviation or upper bound
  // One index of dimension 0 that starts as zeros: the padding row of an embedding; -1 for none.
  int64_t zero_row = -1;

  static Initializer constant(double value) { return {Kind::kConstant, value, 0, -1}; }
  static Initializer normal(double mean, double std) { return {Kind::kNormal, mean, std, -1}; }
  static Initializer uniform(double low, double high) { return {Kind::kUniform, low, high, -1}; }

  // INVALID_ARGUMENT, which begins with `what`, where values of the distribution are not finite in
  // a float dtype: the same on all ranks, whichever values they draw.
  void check_range(const std::string& what, nxd_dtype_t dtype) const;

  // Fills a rank's shard with its part of the whole weight's values. dtype is F32 or F64; out holds
  // spec.local_size() elements in row-major order.
  void fill(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out) const;
};

// A distribution as callers give it: a layer's own default, or as said here.
struct WeightInit {
  nxd_init_t kind = NXD_INIT_DEFAULT;
  double a = 0, b = 0;  // of nxd_init_t

  static WeightInit normal(double std) { return {NXD_INIT_NORMAL, 0, std}; }

  bool is_default() const { return kind == NXD_INIT_DEFAULT; }
  // fan_in for KAIMING_UNIFORM. INVALID_ARGUMENT for numbers that are no distribution's.
  Initializer resolve(const Initializer& fallback, int64_t fan_in) const;
};

}  // namespace nxd
