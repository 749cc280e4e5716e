#pragma once

#include <vector>

#include "core/checkpoint/snapshot.h"
#include "core/optim/state_file.h"

namespace nxd {

// An optimizer's state as it was at one moment.
class StateSnapshot : public Snapshot {
 public:
  // Copies what this rank brings to the file. Its groups are those of the context's background.
  StateSnapshot(StateView view, Context& context);

  std::vector<ProcessGroup*> groups() const override;
  void write(const std::string& path) override;

 private:
  StateView view_;  // of the copies
  OptimizerState copies_;
};

}  // namespace nxd
