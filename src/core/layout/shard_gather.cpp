#include "core/layout/shard_gather.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/comm/exchanged_buffer.h"
#include "core/comm/take_for_call.h"

namespace nxd {
namespace {

using Ranges = std::vector<ShardSpec::Range>;

constexpr char kOperation[] = "all_gather";

// The ranges of every rank: as many pairs of begin and end from each as the most that one has.
struct GatheredRanges {
  std::vector<int64_t> counts, flat;
  size_t most = 0;

  Ranges of(size_t rank) const {
    Ranges ranges;
    for (size_t i = 0; i < static_cast<size_t>(counts[rank]); ++i) {
      const int64_t* pair = flat.data() + 2 * (rank * most + i);
      ranges.push_back({pair[0], pair[1]});
    }
    return ranges;
  }
};

// Ranks tell one another, as a shard knows its own part only.
GatheredRanges gather_ranges(ProcessGroup& group, const Ranges& own) {
  const auto size = static_cast<size_t>(group.size());
  const auto own_count = static_cast<int64_t>(own.size());
  GatheredRanges all;
  take_for_call(&group, kOperation, [&] { all.counts.resize(size); });
  group.run(Call::all_gather(&own_count, all.counts.data(), 1, NXD_DTYPE_I64));
  all.most = static_cast<size_t>(*std::max_element(all.counts.begin(), all.counts.end()));
  std::vector<int64_t> sent;
  take_for_call(&group, kOperation, [&] {
    sent.resize(2 * all.most);
    all.flat.resize(sent.size() * size);
  });
  for (size_t i = 0; i < own.size(); ++i) {
    sent[2 * i] = own[i].begin;
    sent[2 * i + 1] = own[i].end;
  }
  group.run(Call::all_gather(sent.data(), all.flat.data(), sent.size(), NXD_DTYPE_I64));
  return all;
}

// Elements beyond the full tensor are padding, and left out.
void place(const ShardSpec& shard, size_t element, const void* local, void* whole) {
  shard.for_each_run([&](int64_t global, int64_t begin, int64_t count) {
    std::memcpy(static_cast<char*>(whole) + static_cast<size_t>(global) * element,
                static_cast<const char*>(local) + static_cast<size_t>(begin) * element,
                static_cast<size_t>(count) * element);
  });
}

}  // namespace

void gather_shards(ProcessGroup* group, const ShardSpec& shard, nxd_dtype_t dtype,
                   const void* local, void* whole) {
  const size_t element = dtype_size(dtype);
  if (shard.dim() < 0 || !group || group->size() == 1) {
    place(shard, element, local, whole);
    return;
  }
  const GatheredRanges all = gather_ranges(*group, shard.ranges());
  const auto ranks = static_cast<size_t>(group->size());
  std::vector<ShardSpec> shards;
  int64_t most = 0;
  ExchangedBuffer stacked;
  take_for_call(group, kOperation, [&] {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const Ranges ranges = all.of(rank);
      int64_t extent = shard.shape()[static_cast<size_t>(shard.dim())];
      for (const ShardSpec::Range& range : ranges) extent = std::max(extent, range.end);
      shards.push_back(ShardSpec::ranges(shard.shape(), shard.dim(), ranges, extent));
      most = std::max(most, shards.back().local_size());
    }
    stacked = ExchangedBuffer(*group, static_cast<size_t>(most) * element * ranks);
  });
  const size_t bytes = static_cast<size_t>(most) * element;
  char* own = stacked.data() + static_cast<size_t>(group->rank()) * bytes;
  const size_t held = static_cast<size_t>(shard.local_size()) * element;
  std::memcpy(own, local, held);
  std::memset(own + held, 0, bytes - held);
  group->run(Call::all_gather(own, stacked.data(), static_cast<size_t>(most), dtype));
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    place(shards[rank], element, stacked.data() + rank * bytes, whole);
  }
}

}  // namespace nxd
