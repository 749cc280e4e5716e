#include "core/world/groups.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/base/hash.h"
#include "core/base/kept_by_process.h"
#include "core/comm/transports/gloo/gloo_transport.h"
#include "core/comm/transports/hierarchical_transport.h"
#include "core/comm/transports/shm/shm_transport.h"
#include "core/comm/transports/solo_transport.h"

namespace nxd {
namespace {

// Names a list of ranks in the store. The size guards against the unlikely.
std::string key_of(const std::vector<int>& ranks) {
  Hash hash;
  for (const int rank : ranks) hash.add(static_cast<uint64_t>(rank));
  return text("g", ranks.size(), "-", std::hex, hash.value());
}

}  // namespace

Groups::Groups(std::shared_ptr<RankShared> shared, Settings settings,
               std::unique_ptr<GroupRejections> rejections)
    : shared_state_(std::move(shared)),
      settings_(std::move(settings)),
      rejections_(std::move(rejections)) {}

// The key follows from the ranks and from how many groups of them were made before, so members need
// not talk to agree on it.
std::shared_ptr<ProcessGroup> Groups::make(const std::vector<int>& ranks, const std::string& name) {
  const std::string key = key_of(ranks);
  int& made = made_by_key_[key];
  auto group = make(ranks, name, text(key, "-", made));
  ++made;  // one that could not be made does not count
  return group;
}

// No rank is asked: the group connects on its first collective.
std::shared_ptr<ProcessGroup> Groups::make(const std::vector<int>& ranks, const std::string& name,
                                           const std::string& key,
                                           GroupMonitor::FailureCheck check) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto monitor = std::make_shared<GroupMonitor>(shared_state_, key, name, settings_.rank, ranks,
                                                settings_.timeout_ms);
  monitor->set_failure_check(std::move(check));
  auto transport = make_transport(monitor, key, ranks);
  std::erase_if(list_, [](const auto& weak) { return weak.expired(); });
  list_.emplace_back();
  const bool is_in_one_process = std::all_of(ranks.begin(), ranks.end(), [this](int rank) {
    const std::vector<int>& here = settings_.ranks_here;
    return std::binary_search(here.begin(), here.end(), rank);
  });
  const auto group = kept_by_process(
      new ProcessGroup(std::move(monitor), std::move(transport), is_in_one_process));
  list_.back() = group;
  if (aborted_) group->abort();
  return group;
}

std::unique_ptr<Transport> Groups::make_transport(std::shared_ptr<GroupMonitor> monitor,
                                                  const std::string& key,
                                                  const std::vector<int>& ranks) {
  if (ranks.size() == 1) return std::make_unique<SoloTransport>(std::move(monitor));
  std::map<int, std::vector<int>> by_host;
  for (const int rank : ranks) by_host[settings_.hosts.host_of(rank)].push_back(rank);
  std::vector<std::vector<int>> members;
  bool neighbours = false;
  for (auto& [host, on_host] : by_host) {
    neighbours = neighbours || on_host.size() > 1;
    members.push_back(std::move(on_host));
  }
  if (settings_.transport == NXD_TRANSPORT_GLOO ||
      (settings_.transport == NXD_TRANSPORT_AUTO && !neighbours)) {
    return std::make_unique<GlooTransport>(std::move(monitor), key, ranks);
  }
  if (members.size() == 1) {
    return std::make_unique<ShmTransport>(std::move(monitor), key, ranks);
  }
  if (settings_.transport == NXD_TRANSPORT_SHARED_MEMORY) {
    fail(NXD_ERROR_UNSUPPORTED, "group \"", monitor->name(), "\" spans ", members.size(),
         " hosts, and shared memory was asked for; expected auto or hierarchical");
  }
  return std::make_unique<HierarchicalTransport>(std::move(monitor), key, std::move(members));
}

std::shared_ptr<ProcessGroup> Groups::create(const std::vector<int>& ranks, const std::string& name,
                                             const Outcome& given) {
  try {
    check_list(ranks);
    if (has_own_rank(ranks)) given.rethrow();
  } catch (const std::exception& e) {
    if (rejections_) rejections_->reject(ranks, e.what());
    throw;
  }
  // Ranks that a list names rightly make their group without this one, as some programs have all
  // ranks make all groups. To tell them would end a later group, which is of this rank too.
  check_members(ranks);
  if (ranks.size() > 1) return join(ranks, name);
  auto group = make(ranks, name);
  group->run(Call::barrier());  // fails after an abort or a loss, as for a group of several
  return group;
}

void Groups::check_list(const std::vector<int>& ranks) const {
  const int size = shared_state_->world_size;
  check_argument(!ranks.empty(), "ranks: expected at least one rank, got none");
  for (const int rank : ranks) {
    check_argument(rank >= 0 && rank < size, "ranks: expected world ranks 0 to ", size - 1,
                   ", got ", rank,
                   rank == -1 ? ", which bindings give for arguments that they cannot read" : "");
  }
  check_argument(ranks.size() <= static_cast<size_t>(size), "num_ranks: expected at most ", size,
                 ", got more");
  std::set<int> seen;
  for (const int rank : ranks) {
    check_argument(seen.insert(rank).second, "ranks: expected each rank once, got ", rank,
                   " twice");
  }
}

bool Groups::has_own_rank(const std::vector<int>& ranks) const {
  return std::find(ranks.begin(), ranks.end(), settings_.rank) != ranks.end();
}

void Groups::check_members(const std::vector<int>& ranks) const {
  check_list(ranks);
  check_argument(has_own_rank(ranks), "ranks: expected this rank, ", settings_.rank,
                 ", among them");
}

// A member that does not come is told now, and by name; one that rejects, at once. The rejected
// group does not count, as the rank that rejected could not count it either.
std::shared_ptr<ProcessGroup> Groups::join(const std::vector<int>& ranks, const std::string& name) {
  const auto attempt = std::make_shared<GroupRejections::Attempt>(*rejections_, ranks);
  if (const auto error = attempt->rejection(name)) throw *error;
  const std::string base = key_of(ranks);
  const std::string key = text(base, "-", made_by_key_[base], "-", rejections_->count_of(ranks));
  // The attempt ends when the group is made.
  const auto check = [name, weak = std::weak_ptr<GroupRejections::Attempt>(attempt)] {
    const auto present = weak.lock();
    return present ? present->rejection(name) : std::nullopt;
  };
  auto group = make(ranks, name, key, check);
  group->run(Call::barrier());
  ++made_by_key_[base];
  return group;
}

std::shared_ptr<ProcessGroup> Groups::shared(const std::vector<int>& ranks,
                                             const std::string& name) {
  check_members(ranks);
  std::lock_guard<std::mutex> lock(shared_mutex_);
  const std::string key = text("shared-", shared_number_, "-", name, "-", key_of(ranks));
  auto& group = shared_groups_[key];
  if (!group) group = make(ranks, name, key);
  return group;
}

void Groups::forget_shared() {
  std::map<std::string, std::shared_ptr<ProcessGroup>> forgotten;  // end their works unlocked
  std::lock_guard<std::mutex> lock(shared_mutex_);
  forgotten.swap(shared_groups_);
  ++shared_number_;
}

std::vector<std::shared_ptr<ProcessGroup>> Groups::living() {
  std::vector<std::shared_ptr<ProcessGroup>> living;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : list_) {
    if (auto group = weak.lock()) living.push_back(std::move(group));
  }
  return living;
}

// The first living group that meets a condition; null when none does. Takes no memory.
template <class Condition>
std::shared_ptr<ProcessGroup> Groups::find(const Condition& condition) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : list_) {
    auto group = weak.lock();
    if (group && condition(*group)) return group;
  }
  return nullptr;
}

void Groups::abort() noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
  }
  const auto runs = [](const ProcessGroup& group) { return !group.is_aborted(); };
  while (const auto group = find(runs)) group->abort();
}

void Groups::end_works() noexcept {
  const auto works = [](const ProcessGroup& group) { return group.has_works(); };
  while (const auto group = find(works)) group->end_works();
}

}  // namespace nxd
