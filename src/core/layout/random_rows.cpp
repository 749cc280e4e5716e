#include "core/layout/random_rows.h"

#include <bit>
#include <functional>
#include <limits>
#include <numeric>

namespace nxd {
namespace {

int64_t elements(const ShardSpec::Shape& shape, size_t begin, size_t end) {
  const auto at = [&](size_t i) { return shape.begin() + static_cast<std::ptrdiff_t>(i); };
  return std::accumulate(at(begin), at(end), int64_t{1}, std::multiplies<>());
}

// The distance between ranges of one size, also from the last one of a slice to the first of the
// next; 0: there is no such.
int64_t spacing_of_ranges(const ShardSpec& shard) {
  const std::vector<ShardSpec::Range>& ranges = shard.ranges();
  const auto d = static_cast<size_t>(shard.dim());
  const int64_t extent = shard.shape()[d];
  if (ranges.size() == 1) return extent;
  const int64_t size = ranges[0].end - ranges[0].begin, spacing = ranges[1].begin - ranges[0].begin;
  for (size_t i = 1; i < ranges.size(); ++i) {
    const bool is_like = ranges[i].end - ranges[i].begin == size;
    if (!is_like || ranges[i].begin - ranges[i - 1].begin != spacing) return 0;
  }
  const bool goes_on = ranges[0].begin + extent - ranges.back().begin == spacing;
  return goes_on || elements(shard.shape(), 0, d) == 1 ? spacing : 0;
}

}  // namespace

std::optional<RandomRows> RandomRows::of(const ShardSpec& shard) {
  RandomRows out;
  out.count = out.cols = shard.local_size();
  constexpr int64_t kMostLocal = std::numeric_limits<int32_t>::max();
  if (out.count == 0 || out.count > kMostLocal || shard.global_size() > kMostElements) return {};
  const auto d = static_cast<size_t>(shard.dim());
  if (shard.dim() < 0 || shard.ranges() == std::vector<ShardSpec::Range>{{0, shard.shape()[d]}}) {
    out.unit = 0;
    return out;
  }
  const int64_t spacing = spacing_of_ranges(shard);
  if (spacing <= 0) return {};
  out.unit = elements(shard.shape(), d + 1, shard.shape().size());
  const ShardSpec::Range& range = shard.ranges()[0];
  out.first = range.begin * out.unit;
  const int64_t cols = (range.end - range.begin) * out.unit;
  if (cols == out.count) return out;
  out.cols = cols;
  out.rows = out.count / cols;
  out.stride = spacing * out.unit;
  return out;
}

RandomRows RandomRows::part(int64_t begin, int64_t size) const {
  RandomRows out = *this;
  out.count = size;
  if (rows == 1) {
    out.first += begin;
    out.cols = size;
    out.unit = 1;
    return out;
  }
  // As many rows wherever a part begins.
  out.rows = (size + cols - 2) / cols + 1;
  out.first += begin / cols * stride;
  out.skipped = begin % cols;
  return out;
}

std::string RandomRows::code(int64_t words) const {
  return text("rows ", rows, ", cols ", cols, ", stride ", stride,
              unit % words == 0 ? ", aligned" : "");
}

std::vector<int32_t> RandomRows::numbers(const RandomSite& site, int64_t words) const {
  const auto word = [](uint64_t value) {
    return std::bit_cast<int32_t>(static_cast<uint32_t>(value));
  };
  return {word(site.key()[0]),
          word(site.key()[1]),
          word(site.draw()),
          word(site.draw() >> 32),
          word(static_cast<uint64_t>(first / words)),
          word(static_cast<uint64_t>(first % words)),
          word(static_cast<uint64_t>(skipped))};
}

}  // namespace nxd
