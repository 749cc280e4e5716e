#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/base/fork_guard.h"
#include "core/comm/memory/arena.h"
#include "core/comm/memory/process_watch.h"
#include "core/comm/monitor/aborts_in_progress.h"
#include "core/comm/monitor/blocked_callers.h"
#include "core/comm/monitor/failure_registry.h"
#include "core/comm/monitor/timer_thread.h"
#include "core/comm/net/connector.h"
#include "core/comm/net/interrupt.h"

namespace gloo::transport::tcp {
class Device;
}

namespace nxd {

// State of a rank's groups toward the other ranks of its host.
struct HostShared {
  Arena arena;
  PeerArenas peer_arenas;
  ProcessWatch processes;
  bool may_spin = true;  // there is a core for each rank of the host
};

// State that the groups of one rank share.
struct RankShared {
  // Tells the peers that this rank leaves, so that none waits for it until a timeout.
  ~RankShared() {
    if (failures) failures->leave();
  }

  std::shared_ptr<Store> store;  // keys of this world
  std::shared_ptr<FailureRegistry> failures;
  std::shared_ptr<TimerThread> timer_thread;
  std::shared_ptr<gloo::transport::tcp::Device> device;
  std::shared_ptr<Connector> connector;
  std::shared_ptr<HostShared> host = std::make_shared<HostShared>();
  Interrupt interrupt;
  int world_size = 1;
  int large_group = 33;  // ranks from which a group over Gloo is one of many; the same on all ranks
  std::string flight_record_prefix;  // of the files that failed groups are recorded in; "": none
  const ForkGuard fork_guard;        // of the context
  const Deadline::Clock::time_point created = Deadline::Clock::now();
  mutable std::atomic<bool> finalized{false};
  mutable std::atomic<bool> aborted{false};  // any group of this rank
  mutable BlockedCallers blocked_callers;
  const std::shared_ptr<AbortsInProgress> aborts = std::make_shared<AbortsInProgress>();

  int64_t ns_since_created(Deadline::Clock::time_point when) const {
    // The recent time may be a tick before the context was made.
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(when - created).count();
    return since > 0 ? since : 0;
  }
  // To be called now and then by threads inside a call of the user's: does what threads of the
  // library's own need the user's callbacks for.
  void serve() const {
    if (store) store->serve();
  }
};

}  // namespace nxd
