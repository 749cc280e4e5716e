#pragma once

#include <vector>

#include "core/checkpoint/snapshot.h"
#include "core/optim/state_file.h"

namespace nxd {

// An optimizer's state as it was at one moment. It shares the memory of the states, which the next
// step leaves to it (see StateBlock).
class StateSnapshot : public Snapshot {
 public:
  // Takes what this rank brings to the file. Its groups are those of the context's background.
  StateSnapshot(StateView view, Context& context);

  // The optimizer's own memory is its alone again, as one that changes it in place needs.
  void make_own() { states_.make_own(); }

  std::vector<ProcessGroup*> groups() const override;
  std::vector<CheckpointFile> write(const std::string& path) override;

 private:
  StateView view_;  // of states_
  OptimizerState states_;
};

}  // namespace nxd
