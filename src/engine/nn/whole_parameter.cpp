#include "engine/nn/whole_parameter.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/device/collectives.h"

namespace nxd {
namespace {

using Ranges = std::vector<ShardSpec::Range>;

// The ranges of every rank. Ranks tell one another, as a parameter knows its own part only.
std::vector<Ranges> gather_ranges(ProcessGroup& group, const Ranges& own) {
  const auto size = static_cast<size_t>(group.size());
  const auto own_count = static_cast<int64_t>(own.size());
  std::vector<int64_t> counts(size);
  group.all_gather(&own_count, counts.data(), 1, NXD_DTYPE_I64);
  const auto most = static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<int64_t> sent(2 * most, 0), flat(2 * most * size);
  for (size_t i = 0; i < own.size(); ++i) {
    sent[2 * i] = own[i].begin;
    sent[2 * i + 1] = own[i].end;
  }
  group.all_gather(sent.data(), flat.data(), sent.size(), NXD_DTYPE_I64);
  std::vector<Ranges> all(size);
  for (size_t rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < static_cast<size_t>(counts[rank]); ++i) {
      const int64_t* pair = flat.data() + 2 * (rank * most + i);
      all[rank].push_back({pair[0], pair[1]});
    }
  }
  return all;
}

int64_t extent_of(const Ranges& ranges) {
  int64_t sum = 0;
  for (const ShardSpec::Range& range : ranges) sum += range.end - range.begin;
  return sum;
}

// Copies a rank's part to its place; what lies beyond the whole is padding and left out.
void place(at::Tensor& whole, const at::Tensor& part, int64_t dim, const Ranges& ranges) {
  int64_t local = 0;
  for (const ShardSpec::Range& range : ranges) {
    const int64_t end = std::min(range.end, whole.size(dim));
    if (range.begin < end) {
      const int64_t count = end - range.begin;
      whole.narrow(dim, range.begin, count).copy_(part.narrow(dim, local, count));
    }
    local += range.end - range.begin;
  }
}

at::Tensor gather(const Parameter& parameter, const at::Tensor& local) {
  at::NoGradGuard no_grad;
  const ShardSpec& shard = parameter.shard();
  if (shard.dim() < 0) return local.detach().clone(at::MemoryFormat::Contiguous);
  const int64_t dim = shard.dim();
  at::Tensor whole = at::zeros(shard.shape(), local.options().requires_grad(false));
  const GroupOfShards& group = parameter.shard_group();
  if (!group || group->size() == 1) {
    place(whole, local.detach(), dim, shard.ranges());
    return whole;
  }
  check_argument(!local.is_meta(), "parameter ", parameter.canonical_name(),
                 ": has no values on the meta device");
  const std::vector<Ranges> all = gather_ranges(*group, shard.ranges());
  int64_t most = 0;
  for (const Ranges& ranges : all) most = std::max(most, extent_of(ranges));
  at::Tensor sent = local.detach();
  if (sent.size(dim) < most) {
    std::vector<int64_t> sizes = sent.sizes().vec();
    sizes[static_cast<size_t>(dim)] = most;
    at::Tensor grown = at::zeros(sizes, sent.options());
    grown.narrow(dim, 0, sent.size(dim)).copy_(sent);
    sent = grown;
  }
  // Ranks' parts one after another in front, so that each is a plain slice.
  const at::Tensor stacked = all_gather(*group, sent.unsqueeze(0).contiguous(), 0);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    place(whole, stacked.select(0, static_cast<int64_t>(rank)), dim, all[rank]);
  }
  return whole;
}

}  // namespace

at::Tensor gather_whole(const Parameter& parameter) {
  return gather(parameter, parameter.tensor());
}

at::Tensor gather_whole_grad(const Parameter& parameter) {
  const at::Tensor& grad = parameter.tensor().grad();
  int32_t has_grad = grad.defined() ? 1 : 0;
  const GroupOfShards& group = parameter.shard_group();
  if (group && group->size() > 1) {
    group->all_reduce(&has_grad, &has_grad, 1, NXD_DTYPE_I32, NXD_REDUCE_MAX);
  }
  if (has_grad == 0) return {};
  return gather(parameter, grad.defined() ? grad : at::zeros_like(parameter.tensor().detach()));
}

}  // namespace nxd
