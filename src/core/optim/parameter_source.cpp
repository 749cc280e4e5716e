#include "core/optim/parameter_source.h"

#include "core/base/hash.h"
#include "core/optim/step_recorder.h"
#include "core/world/context.h"

namespace nxd {

std::vector<ProcessGroup*> OptimizerGroups::all() const {
  if (world) return {world.get()};
  return {tensor.get(), data.get(), pipeline.get()};
}

OptimizerGroups groups_of_layout(const Context& context, const ParallelState* layout) {
  OptimizerGroups groups;
  groups.world_rank = context.rank();
  if (!layout) return groups;
  groups.tensor = layout->group(NXD_AXIS_TENSOR);
  groups.data = layout->group(NXD_AXIS_DATA);
  groups.pipeline = layout->group(NXD_AXIS_PIPELINE);
  const int spanned = groups.tensor->size() * groups.data->size() * groups.pipeline->size();
  if (spanned != context.size()) return groups;
  groups.world = context.world();
  for (int place = 0; place < spanned; ++place) {
    groups.ranks_by_place.push_back(layout->layout().rank_at(place));
  }
  return groups;
}

bool counts_in_norm(const ParameterInfo& info, const OptimizerGroups& groups) {
  const bool is_first = !groups.tensor || groups.tensor->rank() == 0;
  return info.counts_in_norm && (!info.is_whole || is_first);
}

std::unique_ptr<StepRecorder> ParameterSource::make_step_recorder() { return nullptr; }

uint32_t ParameterSource::names_digest() const {
  if (!names_digest_) {
    Hash hash;
    for (size_t i = 0; i < size(); ++i) hash.add(info(i).name).add(uint64_t{0});
    names_digest_ = hash.folded();
  }
  return *names_digest_;
}

std::optional<std::vector<std::string>> ParameterSource::names_of_model() const {
  const std::shared_ptr<ProcessGroup>& pipeline = groups().pipeline;
  if (pipeline && pipeline->size() > 1) return std::nullopt;
  std::vector<std::string> names;
  for (size_t i = 0; i < size(); ++i) names.push_back(info(i).name);
  return names;
}

}  // namespace nxd
