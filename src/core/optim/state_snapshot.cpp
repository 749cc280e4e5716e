#include "core/optim/state_snapshot.h"

#include <utility>

#include "core/world/context.h"

namespace nxd {
namespace {

// Without blocks where another rank writes the same.
OptimizerState share_states(const StateView& view) {
  std::vector<OptimizerState::Span> shares;
  for (const OptimizerState::Span& span : view.spans()) {
    OptimizerState::Span share;
    share.parameter = span.parameter;
    share.begin = span.begin;
    share.count = span.count;
    share.room = span.room;
    share.updates = span.updates;
    if (view.is_written()) {
      for (const OptimizerState::Block& state : span.states) share.states.push_back(state.share());
      share.master = span.master.share();
    }
    shares.push_back(std::move(share));
  }
  return OptimizerState(std::move(shares));
}

}  // namespace

StateSnapshot::StateSnapshot(StateView view, Context& context)
    : view_(std::move(view)), states_(share_states(view_)) {
  OptimizerGroups& groups = view_.groups;
  for (auto* group : {&groups.tensor, &groups.data, &groups.pipeline, &groups.world}) {
    *group = context.background_group(*group);
  }
  view_.state = &states_;
}

std::vector<ProcessGroup*> StateSnapshot::groups() const {
  const OptimizerGroups& groups = view_.groups;
  return {groups.tensor.get(), groups.data.get(), groups.pipeline.get()};
}

std::vector<CheckpointFile> StateSnapshot::write(const std::string& path) {
  return write_state_shares(path, view_);
}

}  // namespace nxd
