#include "core/comm/monitor/failure_registry.h"

#include <new>
#include <set>

#include "core/base/environment.h"
#include "core/base/log.h"
#include "core/base/text_stream.h"
#include "core/comm/store/store_timeout.h"

namespace nxd {
namespace {

const char* const kLost = "lost";
const char* const kClaims = "lost_claims";
const char* const kHeard = "lost_heard";  // counts the ranks that know of the published loss
const char* const kAllHeard = "lost_all_heard";

const char* const kRejections = "rejections";  // counts the ranks that wait in a rejected call

std::string wait_key(int rank) { return "wait/" + std::to_string(rank); }
std::string waits_key(int rank) { return "waits/" + std::to_string(rank); }
std::string own_loss_key(int rank) { return "lost_to/" + std::to_string(rank); }

std::string left_key(int rank) { return "left/" + std::to_string(rank); }
std::string left_group_key(const std::string& group, int rank) {
  return "left/" + group + "/" + std::to_string(rank);
}

std::string encode(const Loss& loss) { return text(loss.status, " ", loss.rank, " ", loss.reason); }

// Nothing that no rank of this world can have written: a loss with the status of a success would
// end calls that have not moved their data.
std::optional<Loss> decode(const std::string& value, int world_size) {
  TextReader in(value);
  Loss loss{};
  if (!(in >> loss.status >> loss.rank)) return std::nullopt;
  if (loss.status != NXD_ERROR_PEER_LOST && loss.status != NXD_ERROR_TIMEOUT) return std::nullopt;
  if (loss.rank < 0 || loss.rank >= world_size) return std::nullopt;
  in.get();
  std::getline(in, loss.reason);
  check_stream(in);
  return loss;
}

}  // namespace

FailureRegistry::FailureRegistry(std::shared_ptr<Store> store, int rank, int world_size,
                                 int server_rank, int lost_with_store, int64_t timeout_ms)
    : store_(std::move(store)),
      rank_(rank),
      world_size_(world_size),
      server_rank_(server_rank),
      lost_with_store_(lost_with_store),
      timeout_ms_(timeout_ms),
      attached_(store_ != nullptr) {}

std::optional<Loss> FailureRegistry::loss() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return loss_;
}

void FailureRegistry::remember(Loss loss) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (loss_) return;
  loss_ = std::move(loss);
  lost_.store(true, std::memory_order_release);
}

void FailureRegistry::detach() noexcept { attached_ = false; }

// A store that fails is not asked again. When a rank serves it, that rank is the one that was lost;
// a server that is merely slow only counts as silent.
template <class Function>
void FailureRegistry::ask(Function&& function) noexcept {
  if (!attached_) return;
  const StoreTimeout bounded(StoreTimeout::bound_ms(timeout_ms_));
  try {
    function();
  } catch (const StoreNotServed&) {
    // A thread of the library's own could not reach the caller's store. The next may.
  } catch (const std::bad_alloc&) {
    // Nor has the store failed when there is no memory for a request.
  } catch (const Error& e) {
    if (e.status() == NXD_ERROR_OUT_OF_MEMORY) return;  // the store is full
    if (!attached_) return;                             // another thread has found out
    if (e.status() == NXD_ERROR_TIMEOUT) silent_ = may_be_silent();
    if (!attached_.exchange(false)) return;
    if (e.status() != NXD_ERROR_IO || !serves_elsewhere()) return;
    try {
      remember({NXD_ERROR_PEER_LOST, server_rank_, "closed the store that it serves"});
    } catch (...) {
    }
  } catch (...) {
    attached_ = false;
  }
}

void FailureRegistry::poll() noexcept {
  if (lost()) return;
  ask([&] {
    const auto value = store_->get(kLost);
    if (!value) return;
    take_over(*value);
  });
}

// An unreadable entry is no loss: this rank goes by what it sees itself.
void FailureRegistry::take_over(const std::string& published) {
  auto loss = decode(published, world_size_);
  if (!loss) {
    if (!unreadable_.exchange(true)) {
      log(NXD_LOG_WARN, "store key \"", kPrefix, kLost, "\" is no rank's word, and is passed over");
    }
    return;
  }
  const int lost = loss->rank;
  remember(std::move(*loss));
  count_as_hearer(lost);
}

// All but the rank that serves the store, which waits for them, and the lost one.
int FailureRegistry::listeners_to(int lost) const {
  return world_size_ - (lost == server_rank_ ? 1 : 2);
}

void FailureRegistry::count_as_hearer(int lost) {
  if (!serves_elsewhere() || lost == rank_) return;
  if (store_->add(kHeard, 1) == listeners_to(lost)) store_->set(kAllHeard, "1");
}

void FailureRegistry::outlast_loss(Deadline until) noexcept {
  if (server_rank_ != rank_ || outlasted_.exchange(true)) return;
  ask([&] {
    const auto known = loss();
    if (known && listeners_to(known->rank) > 0) store_->wait(kAllHeard, until);
  });
}

void FailureRegistry::store_failed(nxd_status_t status) noexcept {
  // Asking a silent store again would only take longer.
  if (status == NXD_ERROR_TIMEOUT) attached_ = false;
  poll();
  try {
    if (status == NXD_ERROR_TIMEOUT && may_be_silent()) {
      remember(silent_store());
    } else if (status == NXD_ERROR_IO && serves_elsewhere()) {
      remember({NXD_ERROR_PEER_LOST, server_rank_, "closed the store that it serves"});
    }
  } catch (...) {
  }
}

Loss FailureRegistry::silent_store() const {
  return {NXD_ERROR_TIMEOUT, lost_with_store_,
          serves_elsewhere() ? "did not answer in time for the store that it serves"
                             : "is on the host of the store, which did not answer in time"};
}

// A rank writes down its loss before it lets go of its peers, who may ask for the reason while
// nobody has published it: the first to claim may be slow, or have lost the store's answer.
void FailureRegistry::report(Loss loss) noexcept {
  if (lost()) return;
  ask([&] {
    const Loss seen = loss;
    loss = first_cause(seen);
    store_->set(own_loss_key(rank_), encode(loss));
    if (store_->add(kClaims, 1) == 1) {
      publish(loss);
      count_as_hearer(loss.rank);
      return;
    }
    // The first to claim may have died between its claim and its word.
    if (const auto value = store_->wait(kLost, Deadline::after_ms(1000))) {
      take_over(*value);
    } else {
      loss = first_cause(seen);
    }
  });
  try {
    if (silent_ && loss.rank != lost_with_store_) remember(silent_store());
  } catch (...) {
    // The loss as it is does, too.
  }
  remember(std::move(loss));
}

// The loss because of which a lost rank has left, if it has reported one, and so on.
Loss FailureRegistry::first_cause(Loss loss) {
  std::set<int> seen{loss.rank};
  for (;;) {
    const auto value = store_->get(own_loss_key(loss.rank));
    auto cause = value ? decode(*value, world_size_) : std::nullopt;
    if (!cause || !seen.insert(cause->rank).second) return loss;
    loss = std::move(*cause);
  }
}

void FailureRegistry::announce_abort() noexcept {
  if (lost()) return;
  ask([&] {
    if (store_->add(kClaims, 1) == 1) publish({NXD_ERROR_PEER_LOST, rank_, "aborted"});
  });
}

void FailureRegistry::leave() noexcept {
  if (left_.exchange(true) || lost()) return;
  ask([&] { store_->set(left_key(rank_), "1"); });
}

void FailureRegistry::leave_group(const std::string& key) noexcept {
  if (lost()) return;
  ask([&] { store_->set(left_group_key(key, rank_), "1"); });
}

// Peers rely on the rank that has claimed to be the first, so it tries more than once.
void FailureRegistry::publish(const Loss& loss) {
  constexpr int kAttempts = 10;
  for (int attempt = 1;; ++attempt) {
    try {
      return store_->set(kLost, encode(loss));
    } catch (const StoreNotServed&) {
      if (attempt == kAttempts) throw;
    }
  }
}

bool FailureRegistry::has_left(int rank, const std::string& group_key) noexcept {
  bool left = false;
  ask([&] {
    left = store_->get(left_key(rank)).has_value() ||
           store_->get(left_group_key(group_key, rank)).has_value();
  });
  return left;
}

void FailureRegistry::publish_wait(const void* waiter, int awaited) noexcept {
  ask([&] {
    std::lock_guard<std::mutex> lock(waits_mutex_);
    waits_.emplace_back(waiter, awaited);
    if (waits_.size() == 1) store_->set(wait_key(rank_), std::to_string(awaited));
  });
}

void FailureRegistry::clear_wait(const void* waiter) noexcept {
  ask([&] {
    std::lock_guard<std::mutex> lock(waits_mutex_);
    const bool published = !waits_.empty() && waits_.front().first == waiter;
    std::erase_if(waits_, [&](const auto& wait) { return wait.first == waiter; });
    if (!published) return;
    store_->set(wait_key(rank_), waits_.empty() ? "" : std::to_string(waits_.front().second));
  });
}

void FailureRegistry::begin_rejection() noexcept {
  ask([&] { store_->add(kRejections, 1); });
}

void FailureRegistry::end_rejection() noexcept {
  ask([&] { store_->add(kRejections, -1); });
}

bool FailureRegistry::has_rejections() noexcept {
  bool found = false;
  ask([&] { found = store_->get(kRejections).value_or("0") != "0"; });
  return found;
}

void FailureRegistry::leave_before_joining(Store& world, int rank) {
  world.set(kPrefix + left_key(rank), "1");
}

std::optional<int> FailureRegistry::awaited_by(int rank) {
  std::optional<int> awaited;
  ask([&] {
    const auto value = store_->get(wait_key(rank));
    const auto number = env::parse_int(value.value_or(""));
    if (number && *number >= 0 && *number < world_size_) awaited = static_cast<int>(*number);
  });
  return awaited;
}

FailureRegistry::Culprit FailureRegistry::find_culprit(int awaited) noexcept {
  // In the end all ranks wait for a store that does not answer.
  try {
    std::set<int> seen;
    int current = awaited;
    for (;;) {
      const auto next = awaited_by(current);
      if (silent_) return {lost_with_store_, true};
      if (!next) return {current, current == awaited};
      if (*next == rank_) return {awaited, true};
      if (!seen.insert(current).second) return {awaited, false};
      current = *next;
    }
  } catch (...) {
    return {awaited, true};
  }
}

void FailureRegistry::publish_waits(const BlockedCallers::Waits& waits) noexcept {
  ask([&] {
    std::string out = text(waits.number, " ", waits.rounds);
    for (const int awaited : waits.awaited) out += text(" ", awaited);
    store_->set(waits_key(rank_), out);
  });
}

std::optional<BlockedCallers::Waits> FailureRegistry::waits_of(int rank) {
  std::optional<BlockedCallers::Waits> waits;
  ask([&] {
    TextReader in(store_->get(waits_key(rank)).value_or(""));
    BlockedCallers::Waits read{};
    if (!(in >> read.number >> read.rounds)) return;
    for (int awaited = 0; in >> awaited; read.awaited.insert(awaited)) {
      if (awaited < 0 || awaited >= world_size_) return;
    }
    check_stream(in);
    if (!read.awaited.empty()) waits = std::move(read);
  });
  return waits;
}

std::optional<FailureRegistry::Circle> FailureRegistry::find_circle(int awaited) noexcept {
  try {
    Circle circle;
    std::vector<int> next{awaited};
    while (!next.empty()) {
      const int rank = next.back();
      next.pop_back();
      if (circle.rounds.count(rank) > 0) continue;
      const auto waits = waits_of(rank);
      if (!waits) return std::nullopt;
      circle.waits += text(rank, " #", waits->number, ":");
      for (const int other : waits->awaited) circle.waits += text(" ", other);
      circle.waits += "; ";
      circle.rounds[rank] = waits->rounds;
      next.insert(next.end(), waits->awaited.begin(), waits->awaited.end());
    }
    if (circle.rounds.count(rank_) > 0) return circle;
  } catch (...) {
    // As if there were none: the timeout ends the call.
  }
  return std::nullopt;
}

// The first round may have begun before.
bool FailureRegistry::Circle::is_confirmed_by(const Circle& later) const {
  if (waits != later.waits) return false;
  for (const auto& [rank, number] : later.rounds) {
    if (number < rounds.at(rank) + 2) return false;
  }
  return true;
}

}  // namespace nxd
