#pragma once

#include <optional>
#include <vector>

#include "core/layout/shard_spec.h"
#include "nxd/base.h"

namespace nxd {

// In which order the dimensions of an array without gaps lie in memory: C order, or another, such
// as channels last.
class DenseOrder {
 public:
  using Shape = ShardSpec::Shape;

  DenseOrder() = default;  // C order
  // The order of an array with these strides, null for those of C order; nothing if it has gaps, or
  // two elements in one place.
  static std::optional<DenseOrder> of(const Shape& shape, const int64_t* strides);

  bool is_c() const { return dims_.empty(); }
  bool operator==(const DenseOrder& other) const { return dims_ == other.dims_; }
  // The order as a number, for comparisons among ranks.
  uint32_t digest() const;

  // The sizes from the outermost dimension in memory on, and the place of a dimension among them.
  Shape in_memory(const Shape& shape) const;
  int place_of(int dim) const;

  // Copies an array of a shape from this order to C order, and back.
  void copy_to_c(nxd_dtype_t dtype, const Shape& shape, const void* from, void* to) const;
  void copy_from_c(nxd_dtype_t dtype, const Shape& shape, const void* from, void* to) const;

 private:
  Shape strides_of(const Shape& shape) const;

  std::vector<int> dims_;  // from the outermost on; empty for C order
};

}  // namespace nxd
