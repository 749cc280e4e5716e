#include "engine/stablehlo/exchange_lowering.h"

#include <algorithm>

#include "core/base/error.h"

namespace nxd {
namespace {

// The distance between neighbours; 0: they are not evenly spaced.
int64_t spacing_of(const HloSizes& members) {
  const int64_t spacing = members.size() > 1 ? members[1] - members[0] : 1;
  for (size_t i = 1; i < members.size(); ++i) {
    if (members[i] - members[i - 1] != spacing) return 0;
  }
  return std::max<int64_t>(spacing, 0);
}

std::string_view operation_of(nxd_reduce_t reduce) {
  switch (reduce) {
    case NXD_REDUCE_MAX: return "maximum";
    case NXD_REDUCE_MIN: return "minimum";
    case NXD_REDUCE_PROD: return "multiply";
    default: return "add";
  }
}

}  // namespace

std::optional<HloGroups> find_groups_of_replicas(const ModuleReplicas& replicas,
                                                 const std::vector<int>& ranks) {
  const auto count = static_cast<int64_t>(replicas.ranks.size());
  HloSizes members;
  for (const int rank : ranks) {
    const auto found = std::find(replicas.ranks.begin(), replicas.ranks.end(), rank);
    members.push_back(found - replicas.ranks.begin());
    check_internal(members.back() < count, "rank ", rank, " is no replica of the program");
  }
  const auto size = static_cast<int64_t>(members.size());
  if (size == count) return HloGroups{members};
  const int64_t spacing = spacing_of(members), block = spacing * size;
  if (block == 0 || count % block != 0 || members[0] % block >= spacing) return std::nullopt;
  HloGroups groups;
  for (int64_t begin = 0; begin < count; begin += block) {
    for (int64_t first = begin; first < begin + spacing; ++first) {
      HloSizes& group = groups.emplace_back();
      for (int64_t i = 0; i < size; ++i) group.push_back(first + i * spacing);
    }
  }
  return groups;
}

HloGroups groups_of_replicas(const ModuleReplicas& replicas, const std::vector<int>& ranks) {
  auto groups = find_groups_of_replicas(replicas, ranks);
  if (!groups) {
    fail(NXD_ERROR_UNSUPPORTED, "device xla: a group of ", ranks.size(), " ranks from ",
         ranks.front(), " on: expected ranks that are evenly spaced, in groups that all ",
         replicas.ranks.size(), " ranks fall into");
  }
  return std::move(*groups);
}

std::vector<HloValue> ExchangeLowering::lower(const RecordedNode& node,
                                              std::vector<HloValue> values) {
  for (const RecordedExchange& exchange : node.call->exchanges) {
    for (HloValue& value : values) {
      if (!last_.name.empty()) value = hlo_.together({value, last_})[0];
      last_ = value = lower(exchange, value);
    }
  }
  return values;
}

HloValue ExchangeLowering::lower(const RecordedExchange& exchange, const HloValue& x) {
  const HloGroups groups = groups_of_replicas(replicas_, exchange.ranks);
  const std::string_view operation = operation_of(exchange.reduce);
  using Kind = RecordedExchange::Kind;
  if (exchange.kind == Kind::kAllGather) return hlo_.all_gather(x, exchange.dim, groups);
  const HloValue reduced = exchange.kind == Kind::kReduceScatter
                               ? hlo_.reduce_scatter(operation, x, exchange.dim, groups)
                               : hlo_.all_reduce(operation, x, groups);
  if (exchange.reduce != NXD_REDUCE_AVG) return reduced;
  const HloValue wide = hlo_.convert(reduced, wide_dtype(x.dtype));
  const auto size = static_cast<double>(exchange.ranks.size());
  return hlo_.convert(hlo_.over(wide, hlo_.filled_like(wide, size)), x.dtype);
}

HloValue ExchangeLowering::after_all(const HloValue& result) {
  return last_.name.empty() ? result : hlo_.together({result, last_})[0];
}

}  // namespace nxd
