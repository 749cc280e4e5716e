#include "core/world/context.h"

#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>

#include "core/agree/agree.h"
#include "core/base/blocked_signals.h"
#include "core/base/environment.h"
#include "core/base/fork_stamp.h"
#include "core/base/hash.h"
#include "core/comm/monitor/refusals.h"
#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"
#include "core/comm/process_group.h"
#include "core/comm/transports/gloo/gloo_transport.h"
#include "core/comm/transports/hierarchical_transport.h"
#include "core/comm/transports/shm/shm_transport.h"
#include "core/comm/transports/solo_transport.h"
#include "core/world/rendezvous.h"

namespace nxd {
namespace {

// In a forked child the threads behind an object are missing, and closing a connection would reach
// into the parent's event loop. There objects are left as they are.
template <class T>
std::shared_ptr<T> kept_by_process(T* object) {
  return std::shared_ptr<T>(object, [stamp = ForkStamp()](T* o) {
    if (!stamp.is_foreign()) delete o;
  });
}

// Address that the other ranks of the world reach this one at.
std::string own_address(const std::string& interface_name, const World& world,
                        const Membership& membership) {
  if (!interface_name.empty()) {
    return is_interface_name(interface_name) ? address_of_interface(interface_name)
                                             : interface_name;
  }
  if (world.one_host) return "127.0.0.1";
  // The address the store's host is reached from is one the other hosts can reach.
  const std::string server = membership.store->server_host();
  const std::string address = server.empty() ? "" : local_address_toward(server);
  const bool loopback = address.rfind("127.", 0) == 0 || address == "::1";
  return address.empty() || loopback ? first_external_address() : address;
}

// The same, checked.
std::string listening_address(const std::string& interface_name, const World& world,
                              const Membership& membership) {
  const std::string address = own_address(interface_name, world, membership);
  check_argument(interface_name.empty() || (!address.empty() && is_local_address(address)),
                 "interface_name: expected a network interface or an address of this host, got \"",
                 interface_name, "\"");
  if (address.empty() || !is_local_address(address)) {
    fail(NXD_ERROR_IO,
         "no network interface reaches the other hosts; name one by interface_name "
         "or NXD_SOCKET_IFNAME");
  }
  return address;
}

// The event loop of this rank's connections. Gloo makes every connection listen for a moment before
// it is given its socket; on the loopback, where there is one, no other host can interfere.
std::shared_ptr<gloo::transport::tcp::Device> create_device(const std::string& address) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = is_local_address("127.0.0.1") ? "127.0.0.1" : address;
  // Gloo's own look-up crashes where it finds nothing, also for lack of memory.
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(attributes.hostname.c_str(), nullptr, &hints, &list);
  if (error == EAI_MEMORY) throw std::bad_alloc();
  if (error != 0) fail(NXD_ERROR_IO, attributes.hostname, ": ", gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, &freeaddrinfo);
  attributes.ai_family = found->ai_family;
  attributes.ai_socktype = found->ai_socktype;
  attributes.ai_protocol = found->ai_protocol;
  std::memcpy(&attributes.ai_addr, found->ai_addr, found->ai_addrlen);
  attributes.ai_addrlen = static_cast<int>(found->ai_addrlen);
  try {
    // The device's thread must never run the program's signal handlers.
    const BlockedSignals blocked;
    return std::make_shared<gloo::transport::tcp::Device>(attributes);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    fail(NXD_ERROR_IO, "cannot use the address ", attributes.hostname, ": ", e.what());
  }
}

// Names a list of ranks in the store. The size guards against the unlikely.
std::string key_of(const std::vector<int>& ranks) {
  Hash hash;
  for (const int rank : ranks) hash.add(static_cast<uint64_t>(rank));
  return text("g", ranks.size(), "-", std::hex, hash.value());
}

// Cores that this process may run on.
size_t available_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<size_t>(CPU_COUNT(&cores));
}

const char* axis_name(nxd_axis_t axis) {
  static const char* const names[] = {"world",   "tensor",       "pipeline",   "data",
                                      "context", "expert_model", "expert_data"};
  return names[axis];
}

}  // namespace

struct Context::Impl {
  Membership membership;
  int64_t timeout_ms = 0;
  uint64_t seed = 0;
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;
  HostMap hosts;
  std::atomic<bool> plain_kernels{false};
  std::atomic<int64_t> step{0}, microbatch{0};
  std::shared_ptr<RankShared> shared;
  std::shared_ptr<ProcessGroup> world;
  std::shared_ptr<const ParallelState> parallel;

  std::mutex groups_mutex;  // groups against abort, which comes from any thread
  std::vector<std::weak_ptr<ProcessGroup>> groups;
  std::map<std::string, int> groups_by_key;  // how many were made of the same ranks
  std::unique_ptr<Refusals> refusals;        // null in a world of one
  std::atomic<bool> aborted{false};

  // Groups of the present layout. The number tells their keys from those of the layouts before.
  std::map<std::string, std::shared_ptr<ProcessGroup>> shared_groups;
  int layout_number = 0;

  std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, const std::string& name);
  std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, const std::string& name,
                                           const std::string& key,
                                           GroupMonitor::Objection objection = nullptr);
  std::shared_ptr<ProcessGroup> meet_in_group(const std::vector<int>& ranks,
                                              const std::string& name);
  std::unique_ptr<Transport> make_transport(std::shared_ptr<GroupMonitor> monitor,
                                            const std::string& key, const std::vector<int>& ranks);
  void share(const World& world, const Deadline& joined_by);
  std::vector<std::shared_ptr<ProcessGroup>> living_groups();
  template <class Condition>
  std::shared_ptr<ProcessGroup> find_group(const Condition& condition) noexcept;
};

std::vector<std::shared_ptr<ProcessGroup>> Context::Impl::living_groups() {
  std::vector<std::shared_ptr<ProcessGroup>> living;
  std::lock_guard<std::mutex> lock(groups_mutex);
  for (const auto& weak : groups) {
    if (auto group = weak.lock()) living.push_back(std::move(group));
  }
  return living;
}

// The first living group that meets a condition; null when none does. Takes no memory.
template <class Condition>
std::shared_ptr<ProcessGroup> Context::Impl::find_group(const Condition& condition) noexcept {
  std::lock_guard<std::mutex> lock(groups_mutex);
  for (const auto& weak : groups) {
    auto group = weak.lock();
    if (group && condition(*group)) return group;
  }
  return nullptr;
}

// The key follows from the ranks and from how many groups of them were made before, so members need
// not talk to agree on it.
std::shared_ptr<ProcessGroup> Context::Impl::make_group(const std::vector<int>& ranks,
                                                        const std::string& name) {
  const std::string key = key_of(ranks);
  int& made = groups_by_key[key];
  auto group = make_group(ranks, name, text(key, "-", made));
  ++made;  // one that could not be made does not count
  return group;
}

// No rank is asked: the group connects on its first collective.
std::shared_ptr<ProcessGroup> Context::Impl::make_group(const std::vector<int>& ranks,
                                                        const std::string& name,
                                                        const std::string& key,
                                                        GroupMonitor::Objection objection) {
  std::lock_guard<std::mutex> lock(groups_mutex);
  auto monitor =
      std::make_shared<GroupMonitor>(shared, key, name, membership.rank, ranks, timeout_ms);
  monitor->set_objection(std::move(objection));
  auto carrier = make_transport(monitor, key, ranks);
  std::erase_if(groups, [](const auto& weak) { return weak.expired(); });
  groups.emplace_back();
  const auto group = kept_by_process(new ProcessGroup(std::move(monitor), std::move(carrier)));
  groups.back() = group;
  if (aborted) group->abort();
  return group;
}

std::unique_ptr<Transport> Context::Impl::make_transport(std::shared_ptr<GroupMonitor> monitor,
                                                         const std::string& key,
                                                         const std::vector<int>& ranks) {
  if (ranks.size() == 1) return std::make_unique<SoloTransport>(std::move(monitor));
  std::map<int, std::vector<int>> by_host;
  for (const int rank : ranks) by_host[hosts.host_of(rank)].push_back(rank);
  std::vector<std::vector<int>> members;
  bool neighbours = false;
  for (auto& [host, on_host] : by_host) {
    neighbours = neighbours || on_host.size() > 1;
    members.push_back(std::move(on_host));
  }
  if (transport == NXD_TRANSPORT_GLOO || (transport == NXD_TRANSPORT_AUTO && !neighbours)) {
    return std::make_unique<GlooTransport>(std::move(monitor), key, ranks);
  }
  if (members.size() == 1) {
    return std::make_unique<ShmTransport>(std::move(monitor), key, ranks);
  }
  if (transport == NXD_TRANSPORT_SHARED_MEMORY) {
    fail(NXD_ERROR_UNSUPPORTED, "group \"", monitor->name(), "\" spans ", members.size(),
         " hosts, and shared memory was asked for; expected auto or hierarchical");
  }
  return std::make_unique<HierarchicalTransport>(std::move(monitor), key, std::move(members));
}

// A member that does not come is told now, and by name; one that refuses, at once. The refused
// group does not count, as the rank that refused could not count it either.
std::shared_ptr<ProcessGroup> Context::Impl::meet_in_group(const std::vector<int>& ranks,
                                                           const std::string& name) {
  const auto attempt = std::make_shared<Refusals::Attempt>(*refusals, ranks);
  if (const auto error = attempt->refusal(name)) throw *error;
  const std::string base = key_of(ranks);
  const std::string key = text(base, "-", groups_by_key[base], "-", refusals->count_of(ranks));
  // The attempt ends with the meeting.
  const auto objection = [name, weak = std::weak_ptr<Refusals::Attempt>(attempt)] {
    const auto present = weak.lock();
    return present ? present->refusal(name) : std::nullopt;
  };
  auto group = make_group(ranks, name, key, objection);
  group->run(Call::barrier());
  ++groups_by_key[base];
  return group;
}

Context::Context() : impl_(std::make_unique<Impl>()) {}
Context::~Context() = default;

std::shared_ptr<Context> Context::create(const nxd_context_options_t& options,
                                         std::shared_ptr<Store> store) {
  const auto context = kept_by_process(new Context);
  context->join(options, std::move(store));
  return context;
}

// Makes the state that the groups of this rank share, as far as the registry of failures.
void Context::Impl::share(const World& world, const Deadline& joined_by) {
  const Membership& m = membership;
  if (m.local_rank < 0) membership.local_rank = world.hosts.local_rank(m.rank);
  hosts = world.hosts;
  const size_t neighbours = hosts.ranks_of(hosts.host_of(m.rank)).size();
  shared->host->may_spin = neighbours <= available_cores();
  // Failures are looked up on a channel of their own, whose calls take a fraction of the timeout.
  // Making it may take as long as joining itself: a server that is late is no loss yet.
  const int64_t patience = std::clamp<int64_t>(timeout_share(timeout_ms, 1, 4), 200, 10000);
  shared->store = world.store;
  const auto channel = while_joining(
      m, [&] { return world.store->open_channel(std::max(patience, joined_by.remaining_ms())); });
  shared->board = std::make_shared<FailureBoard>(
      std::make_shared<PrefixStore>(channel, FailureBoard::kPrefix), m.rank, m.size,
      world.server_rank, world.lost_with_store(m.rank), patience);
}

void Context::join(const nxd_context_options_t& options, std::shared_ptr<Store> store) {
  Impl& i = *impl_;
  check_argument(options.timeout_ms >= 0, "options.timeout_ms: expected 0 or more, got ",
                 options.timeout_ms);
  i.timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : env::timeout_ms();
  i.seed = options.seed != 0 ? options.seed : env::seed();
  i.plain_kernels = toggle(options.plain_kernels, env::plain_kernels(), "options.plain_kernels");
  check_argument(
      options.transport >= NXD_TRANSPORT_AUTO && options.transport <= NXD_TRANSPORT_HIERARCHICAL,
      "options.transport: expected an NXD_TRANSPORT_*, got ", options.transport);
  i.transport = options.transport != NXD_TRANSPORT_AUTO ? options.transport : env::transport();
  const int large_group = env::large_group();
  const std::string interface_name =
      options.interface_name ? options.interface_name : env::socket_interface();

  const Interrupt interrupt{options.interrupt, options.interrupt_data};
  std::optional<InterruptScope> interruptible(std::in_place, interrupt, "nxd_context_create");
  switch (options.rendezvous) {
    case NXD_RENDEZVOUS_ENVIRONMENT: i.membership = membership_of_environment(i.timeout_ms); break;
    case NXD_RENDEZVOUS_STORE:
      i.membership = membership_of_options(options, std::move(store));
      break;
    default:
      fail(NXD_ERROR_INVALID_ARGUMENT, "options.rendezvous: expected an NXD_RENDEZVOUS_*, got ",
           options.rendezvous);
  }
  i.shared = kept_by_process(new RankShared);
  i.shared->interrupt = interrupt;
  i.shared->flight_record_prefix = env::flight_record();
  i.shared->large_group = i.membership.large_group = large_group;
  i.shared->world_size = i.membership.size;
  if (options.host_id) i.membership.host_id = options.host_id;
  const Membership& m = i.membership;
  if (m.size == 1) {
    i.membership.local_rank = std::max(m.local_rank, 0);
    i.shared->board = std::make_shared<FailureBoard>(nullptr, 0, 1, -1, -1);
    i.world = i.make_group({0}, "world");
    return;
  }
  const Deadline joined_by = Deadline::after_ms(timeout_share(i.timeout_ms, 3, 2));
  const World world = meet(m, i.timeout_ms);
  or_leave(*world.store, m.rank, [&] { i.share(world, joined_by); });
  interruptible.reset();  // from here on the world's group asks
  const std::string address = listening_address(interface_name, world, m);
  // Within one host, shared memory takes no connections and no threads.
  if (i.transport == NXD_TRANSPORT_GLOO || i.hosts.host_count() > 1) {
    i.shared->connector = std::make_shared<Connector>(address, m.rank, Secret::of_environment());
    i.shared->device = create_device(i.shared->connector->address());
    world.store->set(Connector::key(m.rank), i.shared->connector->invitation());
    i.shared->ticker = std::make_shared<Ticker>();
  }
  i.refusals = std::make_unique<Refusals>(std::make_shared<PrefixStore>(world.store, "refusals/"),
                                          m.rank, m.size);
  std::vector<int> ranks(static_cast<size_t>(m.size));
  for (int rank = 0; rank < m.size; ++rank) ranks[static_cast<size_t>(rank)] = rank;
  i.world = i.make_group(ranks, "world");
  i.world->run(Call::barrier());
}

Arena& Context::arena() const { return impl_->shared->host->arena; }
int Context::rank() const { return impl_->membership.rank; }
int Context::size() const { return impl_->membership.size; }
int Context::local_rank() const { return impl_->membership.local_rank; }
uint64_t Context::seed() const { return impl_->seed; }
bool Context::plain_kernels() const { return impl_->plain_kernels; }
void Context::set_plain_kernels(bool plain) { impl_->plain_kernels = plain; }
int64_t Context::step() const { return impl_->step; }
int64_t Context::microbatch() const { return impl_->microbatch; }

void Context::set_step(int64_t step, int64_t microbatch) {
  // So far from the end of the numbers that no run comes there.
  constexpr int64_t kMostSteps = int64_t{1} << 62;
  check_argument(step >= 0, "step: expected 0 or more, got ", step);
  check_argument(step <= kMostSteps, "step: expected at most 2^62, got ", step);
  check_argument(microbatch >= 0, "microbatch: expected 0 or more, got ", microbatch);
  impl_->step = step;
  impl_->microbatch = microbatch;
}

const std::shared_ptr<ProcessGroup>& Context::world() const { return impl_->world; }

void Context::check_members(const std::vector<int>& ranks) const {
  check_usable();
  check_argument(!ranks.empty(), "ranks: expected at least one rank, got none");
  check_argument(ranks.size() <= static_cast<size_t>(size()), "num_ranks: expected at most ",
                 size(), ", got more");
  std::set<int> seen;
  for (const int rank : ranks) {
    check_argument(rank >= 0 && rank < size(), "ranks: expected world ranks 0 to ", size() - 1,
                   ", got ", rank);
    check_argument(seen.insert(rank).second, "ranks: expected each rank once, got ", rank,
                   " twice");
  }
  check_argument(seen.count(this->rank()) == 1, "ranks: expected this rank, ", this->rank(),
                 ", among them");
}

std::shared_ptr<ProcessGroup> Context::create_group(const std::vector<int>& ranks,
                                                    const std::string& name) {
  check_usable();
  try {
    check_members(ranks);
  } catch (const std::exception& e) {
    if (impl_->refusals) impl_->refusals->refuse(ranks, e.what());
    throw;
  }
  if (ranks.size() == 1) return impl_->make_group(ranks, name);
  return impl_->meet_in_group(ranks, name);
}

std::shared_ptr<ProcessGroup> Context::shared_group(const std::vector<int>& ranks,
                                                    const std::string& name) {
  check_members(ranks);
  const std::string key = text("shared-", impl_->layout_number, "-", name, "-", key_of(ranks));
  auto& group = impl_->shared_groups[key];
  if (!group) group = impl_->make_group(ranks, name, key);
  return group;
}

namespace {

void add_layout(Proposal& proposal, const nxd_parallel_options_t& o, int world_size) {
  const auto add = [&](const char* name, int32_t value, int32_t fallback) {
    proposal.same(text("nxd_init_model_parallel: ", name), value != 0 ? value : fallback);
  };
  add("tensor_parallel_size", o.tensor_parallel_size, 1);
  add("pipeline_parallel_size", o.pipeline_parallel_size, 1);
  add("context_parallel_size", o.context_parallel_size, 1);
  add("expert_parallel_size", o.expert_parallel_size, 1);
  add("platform", o.platform, 0);
  add("lnc_size", o.lnc_size, 1);
  add("local_world_size", o.local_world_size, world_size);
}

}  // namespace

void Context::init_model_parallel(const nxd_parallel_options_t& options) {
  check_usable();
  Impl& i = *impl_;
  std::shared_ptr<ParallelState> state;
  Proposal proposal(rank(), "init_model_parallel");
  proposal.attempt([&] {
    check_state(!i.parallel, "nxd_init_model_parallel: initialised already (",
                "nxd_destroy_model_parallel comes first)");
    state = std::make_shared<ParallelState>(RankLayout(options, size()), rank());
  });
  add_layout(proposal, options, size());
  agree({i.world.get()}, proposal);
  state->set_group(NXD_AXIS_WORLD, i.world);
  for (nxd_axis_t axis = NXD_AXIS_TENSOR; axis <= NXD_AXIS_EXPERT_DATA; ++axis) {
    const RankLayout& layout = state->layout();
    const auto ranks = layout.group(axis, layout.find(axis, rank()).group_index);
    state->set_group(axis, i.make_group(ranks, axis_name(axis)));
  }
  i.parallel = state;
}

void Context::destroy_model_parallel() {
  check_not_forked();
  check_state(impl_->parallel != nullptr, "nxd_destroy_model_parallel: not initialised");
  impl_->parallel.reset();
  impl_->shared_groups.clear();
  ++impl_->layout_number;
}

bool Context::model_parallel_is_initialized() const { return impl_->parallel != nullptr; }

const ParallelState& Context::parallel() const {
  check_state(impl_->parallel != nullptr,
              "the parallel layout is not initialised (nxd_init_model_parallel comes first)");
  return *impl_->parallel;
}

int Context::pipeline_neighbour(int distance) const {
  const RankLayout& layout = parallel().layout();
  const RankLayout::Place place = layout.find(NXD_AXIS_PIPELINE, rank());
  const std::vector<int> stages = layout.group(NXD_AXIS_PIPELINE, place.group_index);
  const int n = static_cast<int>(stages.size());
  return stages[static_cast<size_t>(((place.rank_in_group + distance) % n + n) % n)];
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
void Context::finalize() {
  check_usable();
  Impl& i = *impl_;
  for (const auto& group : i.living_groups()) group->wait_for_works();
  i.world->run(Call::barrier());
  if (i.shared->board) i.shared->board->detach();
  i.world->run(Call::barrier());
  if (i.membership.owns_server) i.membership.store->stop_serving();
  if (i.membership.fresh_keys) i.world->run(Call::barrier());
  i.shared->finalized = true;
}

void Context::abort() noexcept {
  if (impl_->shared->stamp.is_foreign()) return;
  {
    std::lock_guard<std::mutex> lock(impl_->groups_mutex);
    impl_->aborted = true;
  }
  const auto runs = [](const ProcessGroup& group) { return !group.is_aborted(); };
  while (const auto group = impl_->find_group(runs)) group->abort();
  impl_->shared->board->announce_abort();
}

// Groups and modules that outlive the context's handle keep the rest of it, but the peers wait for
// this rank in vain from now on.
void Context::leave() noexcept {
  if (impl_->shared->stamp.is_foreign()) return;
  const auto works = [](const ProcessGroup& group) { return group.has_works(); };
  while (const auto group = impl_->find_group(works)) group->end_works();
  if (impl_->shared->board) impl_->shared->board->leave();
}

std::string Context::flight_record() const {
  check_not_forked();
  std::vector<GroupRecord> records;
  for (const auto& group : impl_->living_groups()) records.push_back(group->record());
  const int64_t now = impl_->shared->ns_since_created(Deadline::Clock::now());
  return flight_json(rank(), now, records);
}

void Context::check_not_forked() const {
  check_state(!impl_->shared->stamp.is_foreign(),
              "this process was forked from the one that made the context; objects cannot be used "
              "in it");
}

void Context::check_usable() const {
  check_not_forked();
  check_state(!impl_->shared->finalized, "the context was finalized");
}

}  // namespace nxd
