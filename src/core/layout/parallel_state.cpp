#include "core/layout/parallel_state.h"

#include <utility>

namespace nxd {
namespace {

size_t index_of(nxd_axis_t axis) {
  check_argument(axis >= NXD_AXIS_WORLD && axis <= NXD_AXIS_EXPERT_DATA,
                 "axis: expected an NXD_AXIS_*, got ", axis);
  return static_cast<size_t>(axis);
}

}  // namespace

ParallelState::ParallelState(RankLayout layout, int rank) : layout_(layout), rank_(rank) {
  check_argument(rank >= 0 && rank < layout_.world_size(), "rank: expected 0 to ",
                 layout_.world_size() - 1, ", got ", rank);
}

int ParallelState::size(nxd_axis_t axis) const { return layout_.group_size(axis); }

int ParallelState::rank(nxd_axis_t axis) const { return layout_.find(axis, rank_).rank_in_group; }

int ParallelState::source_rank(nxd_axis_t axis) const {
  return layout_.group(axis, layout_.find(axis, rank_).group_index).front();
}

int ParallelState::pipeline_neighbour(int distance) const {
  const RankLayout::Place place = layout_.find(NXD_AXIS_PIPELINE, rank_);
  const std::vector<int> stages = layout_.group(NXD_AXIS_PIPELINE, place.group_index);
  const int n = static_cast<int>(stages.size());
  return stages[static_cast<size_t>(((place.rank_in_group + distance) % n + n) % n)];
}

std::shared_ptr<ProcessGroup> ParallelState::group(nxd_axis_t axis) const {
  return groups_[index_of(axis)];
}

void ParallelState::set_group(nxd_axis_t axis, std::shared_ptr<ProcessGroup> group) {
  groups_[index_of(axis)] = std::move(group);
}

}  // namespace nxd
