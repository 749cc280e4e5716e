#include "core/parallel/context.h"

#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/environment.h"
#include "core/base/fork_stamp.h"
#include "core/comm/gloo_group.h"
#include "core/comm/socket.h"
#include "core/comm/solo_group.h"
#include "core/parallel/rendezvous.h"

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

std::shared_ptr<gloo::transport::Device> create_device(const std::string& interface_name,
                                                       const World& world,
                                                       const Membership& membership) {
  // Gloo crashes on names it cannot resolve, so it gets none.
  const std::string address = own_address(interface_name, world, membership);
  check_argument(interface_name.empty() || (!address.empty() && is_local_address(address)),
                 "interface_name: expected a network interface or an address of this host, got \"",
                 interface_name, "\"");
  if (address.empty() || !is_local_address(address)) {
    fail(NXD_ERROR_IO,
         "no network interface reaches the other hosts; name one by interface_name "
         "or NXD_SOCKET_IFNAME");
  }
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  try {
    // The device's thread must never run the program's signal handlers.
    const BlockedSignals blocked;
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& e) {
    fail(NXD_ERROR_IO, "cannot use the address ", address, ": ", e.what());
  }
}

// Names a list of ranks in the store. FNV-1a; the size guards against the unlikely.
std::string key_of(const std::vector<int>& ranks) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const int rank : ranks) {
    hash ^= static_cast<uint64_t>(rank);
    hash *= 0x100000001b3ULL;
  }
  return text("g", ranks.size(), "-", std::hex, hash);
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
  std::atomic<bool> plain_kernels{false};
  std::atomic<int64_t> step{0}, microbatch{0};
  std::shared_ptr<LinkShared> shared;
  std::shared_ptr<ProcessGroup> world;
  std::shared_ptr<const ParallelState> parallel;

  std::mutex groups_mutex;  // groups against abort, which comes from any thread
  std::vector<std::weak_ptr<ProcessGroup>> groups;
  std::map<std::string, int> groups_by_key;  // how many were made of the same ranks
  std::atomic<bool> aborted{false};

  // Those of the present layout. The number tells their keys from those of the layouts before.
  std::map<std::string, std::shared_ptr<ProcessGroup>> shared_groups;
  int layout_number = 0;

  std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, const std::string& name);
  std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, const std::string& name,
                                           const std::string& key);
};

// The key follows from the ranks and from how many groups of them were made before, so members need
// not talk to agree on it.
std::shared_ptr<ProcessGroup> Context::Impl::make_group(const std::vector<int>& ranks,
                                                        const std::string& name) {
  const std::string key = key_of(ranks);
  return make_group(ranks, name, text(key, "-", groups_by_key[key]++));
}

// No rank is asked: the group connects on its first collective.
std::shared_ptr<ProcessGroup> Context::Impl::make_group(const std::vector<int>& ranks,
                                                        const std::string& name,
                                                        const std::string& key) {
  std::lock_guard<std::mutex> lock(groups_mutex);
  std::shared_ptr<ProcessGroup> group;
  if (ranks.size() == 1) {
    group = std::make_shared<SoloGroup>(shared, name, ranks[0]);
  } else {
    const int place =
        static_cast<int>(std::find(ranks.begin(), ranks.end(), membership.rank) - ranks.begin());
    group = kept_by_process(new GlooGroup(shared, key, name, place, ranks, timeout_ms));
  }
  std::erase_if(groups, [](const auto& weak) { return weak.expired(); });
  groups.push_back(group);
  if (aborted) group->abort();
  return group;
}

Context::Context() : impl_(std::make_unique<Impl>()) {}
Context::~Context() = default;

std::shared_ptr<Context> Context::create(const nxd_context_options_t& options) {
  const auto context = kept_by_process(new Context);
  context->join(options);
  return context;
}

void Context::join(const nxd_context_options_t& options) {
  Impl& i = *impl_;
  check_argument(options.timeout_ms >= 0, "options.timeout_ms: expected 0 or more, got ",
                 options.timeout_ms);
  i.timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : env::timeout_ms();
  i.seed = options.seed != 0 ? options.seed : env::seed();
  i.plain_kernels = options.plain_kernels != 0 || env::plain_kernels();
  const std::string interface_name =
      options.interface_name ? options.interface_name : env::socket_interface();

  switch (options.rendezvous) {
    case NXD_RENDEZVOUS_ENVIRONMENT: i.membership = membership_of_environment(i.timeout_ms); break;
    case NXD_RENDEZVOUS_STORE: i.membership = membership_of_options(options); break;
    default:
      fail(NXD_ERROR_INVALID_ARGUMENT, "options.rendezvous: expected an NXD_RENDEZVOUS_*, got ",
           options.rendezvous);
  }
  i.shared = kept_by_process(new LinkShared);
  const Membership& m = i.membership;
  if (m.size == 1) {
    i.shared->board = std::make_shared<FailureBoard>(nullptr, 0, -1);
    i.world = i.make_group({0}, "world");
    return;
  }
  const World world = meet(m, i.timeout_ms);
  // Failures are looked up on a channel of their own, whose calls take a fraction of the timeout.
  const int64_t patience = std::clamp<int64_t>(i.timeout_ms / 4, 200, 10000);
  i.shared->store = world.store;
  i.shared->board = std::make_shared<FailureBoard>(
      std::make_shared<PrefixStore>(world.store->open_channel(patience), "failures/"), m.rank,
      world.server_rank);
  i.shared->device = create_device(interface_name, world, m);
  i.shared->ticker = std::make_shared<Ticker>();
  std::vector<int> ranks(static_cast<size_t>(m.size));
  for (int rank = 0; rank < m.size; ++rank) ranks[static_cast<size_t>(rank)] = rank;
  i.world = i.make_group(ranks, "world");
  i.world->barrier();
}

int Context::rank() const { return impl_->membership.rank; }
int Context::size() const { return impl_->membership.size; }
int Context::local_rank() const { return impl_->membership.local_rank; }
uint64_t Context::seed() const { return impl_->seed; }
bool Context::plain_kernels() const { return impl_->plain_kernels; }
void Context::set_plain_kernels(bool plain) { impl_->plain_kernels = plain; }
int64_t Context::step() const { return impl_->step; }
int64_t Context::microbatch() const { return impl_->microbatch; }

void Context::set_step(int64_t step, int64_t microbatch) {
  check_argument(step >= 0, "step: expected 0 or more, got ", step);
  check_argument(microbatch >= 0, "microbatch: expected 0 or more, got ", microbatch);
  impl_->step = step;
  impl_->microbatch = microbatch;
}

const std::shared_ptr<ProcessGroup>& Context::world() const { return impl_->world; }

void Context::check_members(const std::vector<int>& ranks) const {
  check_usable();
  check_argument(!ranks.empty(), "ranks: expected at least one rank, got none");
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
  check_members(ranks);
  auto group = impl_->make_group(ranks, name);
  group->barrier();  // a member that does not come is told now, and by name
  return group;
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

// What ranks compare before a layout is made.
struct LayoutOffer {
  int32_t verdict;  // 0, or why this rank cannot
  int32_t tensor, pipeline, context, expert, platform, lnc, local;

  bool same_layout(const LayoutOffer& o) const {
    return tensor == o.tensor && pipeline == o.pipeline && context == o.context &&
           expert == o.expert && platform == o.platform && lnc == o.lnc && local == o.local;
  }
  std::string describe() const {
    return text("tensor ", tensor, ", pipeline ", pipeline, ", context ", context, ", expert ",
                expert, ", platform ", platform, ", lnc_size ", lnc, ", local_world_size ", local);
  }
};

LayoutOffer offer_of(const nxd_parallel_options_t& o, int world_size) {
  const auto or_default = [](int32_t value, int32_t fallback) { return value ? value : fallback; };
  return {NXD_OK,
          or_default(o.tensor_parallel_size, 1),
          or_default(o.pipeline_parallel_size, 1),
          or_default(o.context_parallel_size, 1),
          or_default(o.expert_parallel_size, 1),
          o.platform,
          or_default(o.lnc_size, 1),
          or_default(o.local_world_size, world_size)};
}

}  // namespace

void Context::init_model_parallel(const nxd_parallel_options_t& options) {
  check_usable();
  Impl& i = *impl_;
  LayoutOffer own = offer_of(options, size());
  std::shared_ptr<ParallelState> state;
  std::unique_ptr<Error> own_error;
  try {
    check_state(!i.parallel, "nxd_init_model_parallel: initialised already (",
                "nxd_destroy_model_parallel comes first)");
    state = std::make_shared<ParallelState>(RankLayout(options, size()), rank());
  } catch (const Error& e) {
    own.verdict = e.status();
    own_error = std::make_unique<Error>(e);
  }
  std::vector<LayoutOffer> offers(static_cast<size_t>(size()));
  constexpr size_t kWords = sizeof(LayoutOffer) / sizeof(int32_t);
  i.world->all_gather(&own, offers.data(), kWords, NXD_DTYPE_I32);
  if (own_error) throw *own_error;
  for (int r = 0; r < size(); ++r) {
    const LayoutOffer& other = offers[static_cast<size_t>(r)];
    if (!other.same_layout(offers[0])) {
      throw Error(NXD_ERROR_INVALID_ARGUMENT,
                  text("nxd_init_model_parallel: ranks disagree: rank 0 asks for ",
                       offers[0].describe(), "; rank ", r, " for ", other.describe()),
                  {r, 0, "world", "init_model_parallel"});
    }
  }
  for (int r = 0; r < size(); ++r) {
    const LayoutOffer& other = offers[static_cast<size_t>(r)];
    if (other.verdict == NXD_OK) continue;
    throw Error(other.verdict,
                text("nxd_init_model_parallel: rank ", r, " refused: ", status_name(other.verdict)),
                {r, 0, "world", "init_model_parallel"});
  }
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

void Context::finalize() {
  check_usable();
  Impl& i = *impl_;
  i.world->barrier();
  if (i.shared->board) i.shared->board->detach();
  if (i.membership.fresh_keys) {
    // A store served for this world alone ends with it, before anybody may go on to join another
    // at the same port.
    if (i.membership.owns_server) i.membership.store->stop_serving();
    i.world->barrier();
  }
  i.shared->finalized = true;
}

void Context::abort() noexcept {
  try {
    if (impl_->shared->stamp.is_foreign()) return;
    std::vector<std::shared_ptr<ProcessGroup>> groups;
    {
      std::lock_guard<std::mutex> lock(impl_->groups_mutex);
      impl_->aborted = true;
      for (const auto& weak : impl_->groups) {
        if (auto group = weak.lock()) groups.push_back(std::move(group));
      }
    }
    for (const auto& group : groups) group->abort();
    impl_->shared->board->announce_abort();
  } catch (...) {
  }
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
