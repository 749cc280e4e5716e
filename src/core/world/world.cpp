#include "core/world/world.h"
#include "core/base/log.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/absolute_path.h"
#include "core/base/core_count.h"
#include "core/base/environment.h"
#include "core/base/kept_by_process.h"
#include "core/comm/deputy_calls.h"
#include "core/comm/monitor/flight_record.h"
#include "core/comm/net/secret.h"
#include "core/comm/transports/gloo/gloo_device.h"
#include "core/world/rank_address.h"

namespace nxd {
namespace {

nxd_transport_t transport_of(const ContextOptions& options) {
  check_argument(
      options.transport >= NXD_TRANSPORT_AUTO && options.transport <= NXD_TRANSPORT_HIERARCHICAL,
      "options.transport: expected an NXD_TRANSPORT_*, got ", options.transport);
  return options.transport != NXD_TRANSPORT_AUTO ? options.transport : env::transport();
}

int64_t timeout_of(const ContextOptions& options) {
  const int64_t timeout_ms = options.timeout_ms ? *options.timeout_ms : env::timeout_ms();
  check_argument(timeout_ms >= 0, "options.timeout_ms: expected 0 or more, got ", timeout_ms);
  return timeout_ms;
}

RankInfo rank_info_of(const ContextOptions& options, int64_t timeout_ms) {
  return options.rendezvous == NXD_RENDEZVOUS_ENVIRONMENT ? rank_info_of_environment(timeout_ms)
                                                          : rank_info_of_options(options);
}

// The program may be elsewhere when a group fails. A record is nothing to fail a context for: where
// there is no working directory, the group that cannot write its record says so.
std::string flight_record_prefix() {
  const std::string prefix = env::flight_record();
  try {
    return absolute_path(prefix);
  } catch (const Error&) {
    return prefix;
  }
}

}  // namespace

ContextOptions World::complete(ContextOptions options) {
  options.timeout_ms = timeout_of(options);
  options.transport = transport_of(options);
  options.large_group = env::large_group();
  if (!options.interface_name) options.interface_name = env::socket_interface();
  check_place(options);
  return options;
}

void World::reject(const ContextOptions& options) noexcept {
  constexpr int64_t kTellingMs = 5000;
  try {
    const InterruptScope interruptible(options.interrupt, "nxd_context_create");
    const RankInfo rank_info = rank_info_of(options, kTellingMs);
    if (rank_info.size > 1) reject_world(rank_info, kTellingMs);
  } catch (...) {
    // The reason itself is thrown.
  }
}

World::World(const ContextOptions& options) {
  const int64_t timeout_ms = *options.timeout_ms;
  const nxd_transport_t transport = options.transport;
  const int large_group = options.large_group;
  const std::string& interface_name = *options.interface_name;

  std::optional<InterruptScope> interruptible(std::in_place, options.interrupt,
                                              "nxd_context_create");
  rank_info_ = rank_info_of(options, timeout_ms);
  rank_info_.host_id = options.host_id;
  rank_info_.large_group = large_group;
  rank_info_.transport = transport;
  shared_ = kept_by_process(new RankShared);
  shared_->interrupt = options.interrupt;
  shared_->flight_record_prefix = flight_record_prefix();
  shared_->large_group = large_group;
  shared_->world_size = size();
  background_ = std::make_unique<Background>(shared_);
  Groups::Settings settings{.rank = rank(),
                            .hosts = {},
                            .ranks_here = {rank()},
                            .transport = transport,
                            .timeout_ms = timeout_ms};
  if (size() == 1) {
    rank_info_.local_rank = std::max(local_rank(), 0);
    shared_->failures = std::make_shared<FailureRegistry>(nullptr, 0, 1, -1, -1);
    groups_ = std::make_unique<Groups>(shared_, std::move(settings), nullptr);
    group_ = groups_->make({0}, "world");
    return;
  }
  const Deadline joined_by = Deadline::after_ms(timeout_share(timeout_ms, 3, 2));
  const WorldFacts facts = join_world(rank_info_, timeout_ms);
  or_leave(*facts.store, rank(), [&] { share(facts, joined_by, timeout_ms); });
  interruptible.reset();  // from here on the world's group asks
  or_give_up([&] {
    const std::string address = rank_address(interface_name, facts, rank_info_);
    // Within one host, shared memory takes no connections and no threads.
    if (transport == NXD_TRANSPORT_GLOO || facts.hosts.host_count() > 1) {
      listen(address, *facts.store);
    }
    settings.hosts = facts.hosts;
    settings.ranks_here = facts.ranks_here;
    groups_ = std::make_unique<Groups>(
        shared_, std::move(settings),
        std::make_unique<GroupRejections>(std::make_shared<PrefixStore>(facts.store, "rejections/"),
                                          rank(), size()));
    std::vector<int> ranks(static_cast<size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    group_ = groups_->make(ranks, "world");
  });
  group_->run(Call::barrier());
}

// Makes the state that the groups of this rank share, as far as the registry of failures.
void World::share(const WorldFacts& facts, const Deadline& joined_by, int64_t timeout_ms) {
  const RankInfo& m = rank_info_;
  const HostMap& hosts = facts.hosts;
  if (m.local_rank < 0) rank_info_.local_rank = hosts.local_rank(m.rank);
  const size_t neighbours = hosts.ranks_of(hosts.host_of(m.rank)).size();
  shared_->host->may_spin = neighbours <= static_cast<size_t>(usable_cores());
  // Failures are looked up on a channel of their own, whose calls take a fraction of the timeout.
  // Making it may take as long as joining itself: a server that is late is no loss yet.
  const int64_t store_timeout_ms = std::clamp<int64_t>(timeout_share(timeout_ms, 1, 4), 200, 10000);
  shared_->store = facts.store;
  const auto channel = while_joining(m, [&] {
    return facts.store->open_channel(std::max(store_timeout_ms, joined_by.remaining_ms()));
  });
  shared_->failures = std::make_shared<FailureRegistry>(
      std::make_shared<PrefixStore>(channel, FailureRegistry::kPrefix), m.rank, m.size,
      facts.server_rank, facts.lost_with_store(m.rank), store_timeout_ms);
}

// Runs a part of joining that may fail on this rank alone. The peers, who wait in the world's first
// call, then learn why it does not come.
void World::or_give_up(const std::function<void()>& part) {
  try {
    part();
  } catch (...) {
    constexpr int64_t kHearingMs = 2000;
    const Error e = Error::current();
    shared_->failures->report({NXD_ERROR_PEER_LOST, rank(), text("gave up: ", e.what())});
    shared_->failures->outlast_loss(Deadline::after_ms(kHearingMs));
    throw;
  }
}

// Other ranks connect from now on.
void World::listen(const std::string& address, Store& store) {
  shared_->connector = std::make_shared<Connector>(address, rank(), Secret::of_environment());
  shared_->device = make_gloo_device(shared_->connector->address());
  store.set(Connector::key(rank()), shared_->connector->peer_address());
  shared_->timer_thread = std::make_shared<TimerThread>();
}

// The order in which ranks let go of their store. A rank looks into it only while it waits in a
// call and has not detached; a rank that serves it may end it as soon as it has finalized, and its
// whole process with it. So no rank may leave, or stop serving, before every rank has detached:
//
//   1. first barrier: every rank has come here, so none needs to learn of anything any more.
//      Ranks that wait for a late one still look into the store, which all ranks still keep.
//   2. detach: from here on this rank asks the store nothing. A rank that dies is seen by its
//      connection or its process alone.
//   3. second barrier: behind it every rank has detached. A look that began in the first barrier
//      has ended, as the thread that made it is the one that came here.
//   4. stop serving, on the rank that serves the store for this world alone.
//   5. third barrier: behind it the port is free, and any rank may go on to join another
//      world there.
void World::finalize() {
  check_usable();
  check_not_interrupted("nxd_context_finalize");
  DeputyCalls::wait_for_own();
  background_->wait("nxd_context_finalize");
  for (const auto& group : groups_->living()) group->wait_for_works();
  group_->run(Call::barrier());
  if (shared_->failures) shared_->failures->detach();
  group_->run(Call::barrier());
  if (rank_info_.owns_server) rank_info_.store->stop_serving();
  if (rank_info_.fresh_keys) group_->run(Call::barrier());
  shared_->finalized = true;
}

void World::abort() noexcept {
  if (shared_->fork_guard.is_foreign()) return;
  const AbortsInProgress::Scope in_progress(shared_->aborts);
  groups_->abort();
  shared_->failures->announce_abort();
}

// Groups and modules that outlive the context's handle keep the rest of it, but the peers wait for
// this rank in vain from now on.
bool World::leave() noexcept {
  if (shared_->interrupt.is_asking()) {
    log(NXD_LOG_ERROR,
        "nxd_context_destroy: the context is left as it is: the interrupt callback of "
        "a call of it destroys it");
    return false;
  }
  if (shared_->fork_guard.is_foreign()) return true;
  try {
    DeputyCalls::wait_for_own();
  } catch (const Error&) {
    // Calls of the parent's, of which this fork has nothing to wait for.
  }
  background_->end();
  groups_->end_works();
  if (shared_->failures) shared_->failures->leave();
  wait_for_aborts();
  return true;
}

std::string World::flight_record() const {
  check_not_forked();
  std::vector<GroupRecord> records;
  for (const auto& group : groups_->living()) records.push_back(group->record());
  return flight_json(rank(), shared_->ns_since_created(Deadline::Clock::now()), records);
}

void World::check_not_forked() const {
  check_state(!shared_->fork_guard.is_foreign(),
              "this process was forked from the one that made the context; objects cannot be used "
              "in it");
}

void World::check_not_interrupted(const char* operation) const {
  check_state(!shared_->interrupt.is_asking(), operation,
              ": the interrupt callback cannot do this while a call is interrupted");
}

void World::check_usable() const {
  check_not_forked();
  check_state(!shared_->finalized, "the context was finalized");
}

}  // namespace nxd
