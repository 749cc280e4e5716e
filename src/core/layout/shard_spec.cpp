#include "core/layout/shard_spec.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "core/base/element_count.h"

namespace nxd {
namespace {

int64_t product(const ShardSpec::Shape& shape, size_t begin, size_t end) {
  const std::span<const int64_t> extents(shape.data() + begin, end - begin);
  for (const int64_t extent : extents) {
    check_argument(extent >= 0, "shape: expected no negative extents, got ", shape_text(shape));
  }
  // Bytes of the largest element type must fit too.
  const auto size = element_count(extents, std::numeric_limits<int64_t>::max() / 16);
  check_argument(size.has_value(), "shape: expected fewer elements than ", shape_text(shape),
                 " has");
  return *size;
}

int64_t check_part(const ShardSpec::Shape& shape, int dim, int rank, int size) {
  check_argument(dim >= 0 && static_cast<size_t>(dim) < shape.size(),
                 "dim: expected a dimension of shape ", shape_text(shape), ", got ", dim);
  check_argument(size >= 1, "size: expected at least 1, got ", size);
  check_argument(rank >= 0 && rank < size, "rank: expected 0 to ", size - 1, ", got ", rank);
  return shape[static_cast<size_t>(dim)];
}

void check_divisible(const ShardSpec::Shape& shape, int dim, int64_t extent, int64_t parts) {
  check_argument(extent % parts == 0, "shape ", shape_text(shape), ": expected dimension ", dim,
                 " of ", extent, " to be divisible by ", parts);
}

}  // namespace

std::string shape_text(const ShardSpec::Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

ShardSpec::ShardSpec(Shape shape) : shape_(std::move(shape)), local_shape_(shape_) {
  global_size_ = local_size_ = product(shape_, 0, shape_.size());
}

ShardSpec ShardSpec::replicated(Shape shape) { return ShardSpec(std::move(shape)); }

ShardSpec ShardSpec::split(Shape shape, int dim, int rank, int size) {
  return strided(std::move(shape), dim, rank, size, 1);
}

ShardSpec ShardSpec::strided(Shape shape, int dim, int rank, int size, int stride) {
  const int64_t extent = check_part(shape, dim, rank, size);
  check_argument(stride >= 1, "stride: expected at least 1, got ", stride);
  const int64_t chunks = int64_t{size} * stride;
  check_divisible(shape, dim, extent, chunks);
  const int64_t chunk = extent / chunks;
  std::vector<Range> taken;
  for (int64_t i = rank; i < chunks; i += size) taken.push_back({i * chunk, (i + 1) * chunk});
  return ranges(std::move(shape), dim, taken, extent);
}

ShardSpec ShardSpec::padded(Shape shape, int dim, int64_t padded_extent, int rank, int size,
                            int stride) {
  const int64_t extent = check_part(shape, dim, rank, size);
  check_argument(padded_extent >= extent, "padded_extent: expected at least ", extent, ", got ",
                 padded_extent);
  check_argument(stride >= 1, "stride: expected at least 1, got ", stride);
  check_divisible(shape, dim, extent, stride);
  check_divisible(shape, dim, padded_extent, int64_t{size} * stride);
  const int64_t part = padded_extent / size / stride, real = extent / stride;
  if (stride == 1)
    return ranges(std::move(shape), dim, {{rank * part, (rank + 1) * part}}, padded_extent);
  const int64_t begin = std::min(rank * part, real), end = std::min((rank + 1) * part, real);
  std::vector<Range> taken;
  for (int64_t block = 0; block < stride; ++block) {
    taken.push_back({block * real + begin, block * real + end});
    taken.push_back({extent, extent + part - (end - begin)});
  }
  return ranges(std::move(shape), dim, taken, padded_extent);
}

ShardSpec ShardSpec::heads(Shape shape, int dim, int num_heads, int rank, int size) {
  const int64_t extent = check_part(shape, dim, rank, size);
  check_argument(num_heads >= 1, "num_heads: expected at least 1, got ", num_heads);
  check_divisible(shape, dim, extent, num_heads);
  if (num_heads >= size) {
    check_argument(num_heads % size == 0, "num_heads: expected a multiple of the ", size,
                   " ranks, got ", num_heads);
    return split(std::move(shape), dim, rank, size);
  }
  check_argument(size % num_heads == 0, "num_heads: expected a divisor of the ", size,
                 " ranks, got ", num_heads);
  const int64_t width = extent / num_heads;
  const int64_t head = int64_t{rank} * num_heads / size;
  return ranges(std::move(shape), dim, {{head * width, (head + 1) * width}}, extent);
}

ShardSpec ShardSpec::ranges(Shape shape, int dim, const std::vector<Range>& taken,
                            int64_t padded_extent) {
  const int64_t extent = check_part(shape, dim, 0, 1);
  ShardSpec spec(std::move(shape));
  spec.dim_ = dim;
  const auto d = static_cast<size_t>(dim);
  int64_t held = 0;
  for (const Range& range : taken) {
    check_argument(range.begin >= 0 && range.begin <= range.end && range.end <= padded_extent,
                   "ranges: expected ranges within 0 to ", padded_extent, ", got ", range.begin,
                   " to ", range.end);
    held += range.end - range.begin;
    spec.padding_ += std::max(range.end, extent) - std::max(range.begin, extent);
    if (range.begin == range.end) continue;
    // Runs that continue one another are one run.
    if (!spec.ranges_.empty() && spec.ranges_.back().end == range.begin)
      spec.ranges_.back().end = range.end;
    else
      spec.ranges_.push_back(range);
  }
  spec.whole_ = spec.ranges_ == std::vector<Range>{{0, extent}};
  spec.local_shape_[d] = held;
  spec.outer_ = product(spec.shape_, 0, d);
  spec.inner_ = product(spec.shape_, d + 1, spec.shape_.size());
  spec.local_size_ = product(spec.local_shape_, 0, spec.local_shape_.size());
  return spec;
}

}  // namespace nxd
