#pragma once

// Handles of checkpoints, and how snapshots come into them.
#include <memory>

#include "capi/arguments.h"
#include "core/base/fork_guard.h"
#include "core/checkpoint/checkpoint.h"

struct nxd_checkpoint {
  std::unique_ptr<nxd::Checkpoint> value;
  nxd::ForkGuard fork_guard{};
};

namespace nxd {

inline Checkpoint& unwrap(nxd_checkpoint_t* checkpoint) {
  check_argument(checkpoint, "checkpoint: expected a checkpoint, got NULL");
  checkpoint->fork_guard.check("checkpoint");
  return *checkpoint->value;
}

// Arguments that are wrong on one rank fail all of them, also those that take unwraps.
inline void add_snapshot(nxd_checkpoint_t* checkpoint, const char* name,
                         const Checkpoint::Take& take) {
  unwrap(checkpoint).add_snapshot(name ? name : "", [&](Context& context) {
    required(name, "name");
    return take(context);
  });
}

}  // namespace nxd
