#include "core/optim/state_snapshot.h"

#include <cstring>
#include <utility>

#include "core/base/dtype.h"
#include "core/world/context.h"

namespace nxd {
namespace {

OptimizerState::Block copy_of(const OptimizerState::Block& block, size_t bytes) {
  OptimizerState::Block copy(kernels::pool_allocate(bytes));
  std::memcpy(copy.get(), block.get(), bytes);
  return copy;
}

// Without blocks where another rank writes the same.
OptimizerState copies_of(const StateView& view) {
  std::vector<OptimizerState::Span> copies;
  for (const OptimizerState::Span& span : view.spans()) {
    OptimizerState::Span copy;
    copy.parameter = span.parameter;
    copy.begin = span.begin;
    copy.count = span.count;
    copy.updates = span.updates;
    const nxd_dtype_t dtype = OptimizerState::state_dtype(view.parameters[span.parameter]);
    const size_t bytes = static_cast<size_t>(span.count) * dtype_size(dtype);
    if (view.is_written()) {
      for (const OptimizerState::Block& state : span.states) {
        copy.states.push_back(copy_of(state, bytes));
      }
      if (span.master) copy.master = copy_of(span.master, bytes);
    }
    copies.push_back(std::move(copy));
  }
  return OptimizerState(std::move(copies));
}

}  // namespace

StateSnapshot::StateSnapshot(StateView view, Context& context)
    : view_(std::move(view)), copies_(copies_of(view_)) {
  OptimizerGroups& groups = view_.groups;
  for (auto* group : {&groups.tensor, &groups.data, &groups.pipeline, &groups.world}) {
    *group = context.background_group(*group);
  }
  view_.state = &copies_;
}

std::vector<ProcessGroup*> StateSnapshot::groups() const {
  const OptimizerGroups& groups = view_.groups;
  return {groups.tensor.get(), groups.data.get(), groups.pipeline.get()};
}

void StateSnapshot::write(const std::string& path) { write_state_shares(path, view_); }

}  // namespace nxd
