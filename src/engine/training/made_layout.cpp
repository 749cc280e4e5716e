#include "engine/training/made_layout.h"

#include "core/base/error.h"
#include "engine/training/local_module.h"

namespace nxd {

std::string why_other_layout(const Module& root, const std::vector<NamedParameter>& parameters,
                             const ParallelState& layout) {
  constexpr const char* kExpected =
      ": expected the layout that it was made in, got another layout, whose ranks do not have all "
      "of its parts";
  const auto* local = dynamic_cast<const LocalModule*>(&root);
  if (local && local->pipeline_ranks() != layout.group(NXD_AXIS_PIPELINE)->ranks()) {
    return text("the local module of a pipeline's ", root.class_name(), kExpected);
  }
  const std::vector<int>& ranks = layout.group(NXD_AXIS_TENSOR)->ranks();
  for (const NamedParameter& entry : parameters) {
    const GroupOfShards& group = entry.parameter->shard_group();
    if (entry.parameter->shard().dim() < 0 || !group || group->ranks() == ranks) continue;
    return text("parameter ", entry.name, kExpected);
  }
  return "";
}

}  // namespace nxd
