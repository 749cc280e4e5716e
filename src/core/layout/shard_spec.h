#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// The part of a global tensor that a rank holds: all, or index ranges along one dimension, in local
// order. Ranges may repeat or interleave those of other ranks, so strided, fused, padded and
// replicated-head shards are all of this form. Pure.
class ShardSpec {
 public:
  using Shape = std::vector<int64_t>;
  struct Range {
    int64_t begin;
    int64_t end;
    bool operator==(const Range&) const = default;
  };

  static ShardSpec replicated(Shape shape);
  // The rank-th of size equal parts. INVALID_ARGUMENT when the dimension is not divisible.
  static ShardSpec split(Shape shape, int dim, int rank, int size);
  // The dimension is cut into size * stride chunks, and the rank holds chunks rank, rank + size,
  // rank + 2 size and so on: the shards of stride tensors that are fused in one.
  static ShardSpec strided(Shape shape, int dim, int rank, int size, int stride);
  // As strided for the dimension grown to padded_extent: what lies beyond the real one is padding,
  // with a stride beyond the real part of each of the stride fused tensors.
  static ShardSpec padded(Shape shape, int dim, int64_t padded_extent, int rank, int size,
                          int stride = 1);
  // The dimension is num_heads heads. With at least one head per rank as split; with fewer, rank r
  // holds head r * num_heads / size, and several ranks the same one.
  static ShardSpec heads(Shape shape, int dim, int num_heads, int rank, int size);
  // Any ranges; each within 0..padded_extent, which is at least the dimension's extent.
  static ShardSpec ranges(Shape shape, int dim, const std::vector<Range>& taken,
                          int64_t padded_extent);

  const Shape& shape() const { return shape_; }
  int dim() const { return dim_; }  // -1: not sharded
  const std::vector<Range>& ranges() const { return ranges_; }
  const Shape& local_shape() const { return local_shape_; }
  int64_t global_size() const { return global_size_; }
  int64_t local_size() const { return local_size_; }
  // Some local elements belong to no global one. Code that fills a shard sets them to zero.
  bool has_padding() const { return padding_ > 0; }
  // Indices of the dimension that are padding, of the local ones.
  int64_t padding() const { return padding_; }
  bool operator==(const ShardSpec&) const = default;

  // Calls visit(global_begin, local_begin, count) for contiguous runs of flat row-major indices, in
  // local order. Padding is left out.
  template <class Visitor>
  void for_each_run(Visitor&& visit) const {
    if (whole_) {
      if (global_size_ > 0) visit(int64_t{0}, int64_t{0}, global_size_);
      return;
    }
    const auto d = static_cast<size_t>(dim_);
    const int64_t extent = shape_[d];
    const int64_t row = local_shape_[d] * inner_;
    for (int64_t outer = 0; outer < outer_; ++outer) {
      int64_t local = outer * row;
      for (const Range& range : ranges_) {
        const int64_t end = range.end < extent ? range.end : extent;
        if (range.begin < end && inner_ > 0)
          visit((outer * extent + range.begin) * inner_, local, (end - range.begin) * inner_);
        local += (range.end - range.begin) * inner_;
      }
    }
  }

 private:
  explicit ShardSpec(Shape shape);

  Shape shape_;
  int dim_ = -1;
  std::vector<Range> ranges_;
  Shape local_shape_;
  int64_t global_size_ = 1, local_size_ = 1;
  int64_t outer_ = 1, inner_ = 1;  // products of the dimensions before and after dim_
  bool whole_ = true;
  int64_t padding_ = 0;
};

// Such as "[4, 8]".
std::string shape_text(const ShardSpec::Shape& shape);

}  // namespace nxd
