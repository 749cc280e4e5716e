#include "core/tensor_parallel/region_mapping.h"

#include <array>

#include "core/base/dtype.h"
#include "core/tensor_parallel/array_checks.h"

namespace nxd {

RegionMoves region_moves(nxd_region_mapping_t mapping) {
  using Move = RegionMove;
  static constexpr std::array<RegionMoves, 6> kMoves{{
      {Move::kCopy, Move::kAllReduce},           // COPY_TO
      {Move::kAllReduce, Move::kCopy},           // REDUCE_FROM
      {Move::kSplit, Move::kAllGather},          // SCATTER_TO
      {Move::kAllGather, Move::kSplit},          // GATHER_FROM
      {Move::kAllGather, Move::kReduceScatter},  // GATHER_FOR_SHARDS
      {Move::kReduceScatter, Move::kAllGather},  // REDUCE_SCATTER_TO
  }};
  check_argument(mapping >= 0 && static_cast<size_t>(mapping) < kMoves.size(),
                 "mapping: expected an NXD_REGION_MAPPING_*, got ", mapping);
  return kMoves[static_cast<size_t>(mapping)];
}

RegionMapping::RegionMapping(const ProcessGroup& group, RegionMove move, int64_t dim,
                             const Array& from, const Array& to, const Names& names)
    : group_(group), move_(move), from_(from), to_(to) {
  check(dim, names);
  if (group_.size() == 1) return;
  const bool scatters = move_ == RegionMove::kReduceScatter;
  if (scatters || move_ == RegionMove::kAllReduce) {
    reduced_.emplace(group_, to_, scatters ? dim_ : -1, partial_sum_dtype(to_.dtype),
                     CallerWorkspace{}, scratch_);
  }
  if (move_ == RegionMove::kAllGather) {
    stacked_.emplace(group_, from_.dtype, from_.shape, dim_, scratch_);
  }
}

void RegionMapping::check(int64_t dim, const Names& names) {
  const bool sums = move_ == RegionMove::kAllReduce || move_ == RegionMove::kReduceScatter;
  check_argument(!sums || dtype_is_float(from_.dtype), names.from,
                 ": expected f32, f64, bf16 or f16, got ", dtype_name(from_.dtype));
  check_argument(to_.dtype == from_.dtype, names.to, ": expected ", dtype_name(from_.dtype), " as ",
                 names.from, ", got ", dtype_name(to_.dtype));
  Array::Shape expected = from_.shape;
  if (uses_dim()) {
    dim_ = checked_dim(dim, from_.dims(), "dim");
    int64_t& size = expected[static_cast<size_t>(dim_)];
    const bool grows = move_ == RegionMove::kAllGather;
    check_argument(grows || size % group_.size() == 0, names.from,
                   ": expected a size of dimension ", dim_, " that divides by the ", group_.size(),
                   " ranks of group ", group_.name(), ", got the shape ", shape_text(from_.shape));
    size = grows ? size * group_.size() : size / group_.size();
  }
  check_argument(to_.shape == expected, names.to, ": expected the shape ", shape_text(expected),
                 ", got ", shape_text(to_.shape));
  check_output(to_, names.to);
  check_apart(to_, names.to, from_, names.from);
}

void RegionMapping::propose(Proposal& proposal, const RegionMapping* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const RegionMapping&;
  same("mapping (0: copy, 1: sum, 2: split, 3: gather, 4: sum and split)",
       [](Plan p) { return static_cast<int>(p.move_); });
  proposal.same_dtype("dtype", plan ? plan->from_.dtype : NXD_DTYPE_F32);
  same("elements", [](Plan p) { return p.from_.count(); });
  same("dim", [](Plan p) { return p.dim_; });
  same("size of dim", [](Plan p) { return p.uses_dim() ? p.from_.size(p.dim_) : 0; });
  same("digest of the shape", [](Plan p) { return digest_of(p.from_.shape); });
}

void RegionMapping::run(GroupCalls& calls) const {
  if (reduced_) return reduce(calls);
  if (stacked_) {
    const Array own = stacked_->part(scratch_, group_.rank());
    kernels::move_rows(from_.rows(), own.rows());
    calls.run(stacked_->gather(scratch_));
    return stacked_->copy_to(to_, scratch_);
  }
  const Array from =
      move_ == RegionMove::kSplit ? part_of_rank(from_, dim_, group_.rank(), group_.size()) : from_;
  kernels::move_rows(from.rows(), to_.rows());
}

void RegionMapping::reduce(GroupCalls& calls) const {
  const Array summand = reduced_->summand(scratch_);
  kernels::move_rows(from_.rows(), summand.rows());
  calls.run(reduced_->call(scratch_));
  reduced_->finish(scratch_);
}

}  // namespace nxd
