#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/monitor/failure_registry.h"
#include "core/comm/store/store.h"
#include "core/world/context_options.h"
#include "core/world/host_map.h"

namespace nxd {

// A rank's place in the world, and the store through which it joins the others.
struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;    // -1: to be learned from the world
  int large_group = 33;  // see RankShared
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;
  std::string host_id;           // names this rank's host; "": NXD_HOST_ID, or what the system says
  std::shared_ptr<Store> store;  // null in a world of one
  std::string prefix;            // of this job's keys
  // The store's keys are this job's own: it was served for this job, or the launcher names the job.
  bool fresh_keys = false;
  // This process serves the store for this world alone.
  bool owns_server = false;
};

// From the variables that torchrun, nxdrun, mpirun or srun set (see launcher.h). Without them it is
// a world of one, with no network.
RankInfo rank_info_of_environment(int64_t timeout_ms);
RankInfo rank_info_of_options(const ContextOptions& options);
// INVALID_ARGUMENT for a fault of this rank's place that leaves it able to tell the others.
void check_place(const ContextOptions& options);

// Facts that the ranks have learned of one another.
struct WorldFacts {
  std::shared_ptr<Store> store;  // keys of this world alone
  bool one_host = true;          // every rank reaches every other over the loopback
  HostMap hosts;
  std::vector<int> ranks_here{0};  // of this process, in ascending order
  int server_rank = -1;            // rank whose process serves the store; -1: none
  int near_store = -1;  // first rank of the host that the store is served on; -1: none, unknown

  // The rank to blame when the store does not answer: the one that serves it, or the first on the
  // host that does, if that is another host. -1: none.
  int lost_with_store(int rank) const {
    if (server_rank >= 0 || near_store < 0) return server_rank;
    return hosts.host_of(near_store) == hosts.host_of(rank) ? -1 : near_store;
  }
};

// Calls a function; says of what it throws that this rank was joining its world.
template <class Function>
auto while_joining(const RankInfo& m, Function&& function) {
  try {
    return function();
  } catch (const Error& e) {
    throw Error(e.status(),
                text("nxd_context_create (rank ", m.rank, " of ", m.size, "): ", e.what()),
                e.context());
  }
}

// Runs a function between the rendezvous and the time when the others can be told of a failure
// otherwise: when it fails, they learn that this rank has left.
template <class Function>
auto or_leave(Store& world, int rank, Function&& function) {
  try {
    return function();
  } catch (...) {
    try {
      FailureRegistry::leave_before_joining(world, rank);
    } catch (...) {
    }
    throw;
  }
}

// Waits for all ranks. Rank 0 collects what each tells of itself and announces the result, so
// that the load on the store grows with the number of ranks and not with its square. TIMEOUT names
// the ranks that did not come.
//
// A store may carry several worlds, one after the other. The number of this one is how often the
// rank has joined. With keys of this job's own the store counts. With a store that the caller gave
// the store object counts, and each rank may join it only once. Keys that an earlier job has left
// behind make that fail.
WorldFacts join_world(const RankInfo& rank_info, int64_t timeout_ms);

// In its place on a rank that cannot join: the others do not wait for it.
void reject_world(const RankInfo& rank_info, int64_t timeout_ms);

}  // namespace nxd
