#include "core/comm/monitor/blocked_callers.h"

#include <algorithm>
#include <vector>

#include "core/base/fork_guard.h"
#include "core/base/thread_own.h"

namespace nxd {

struct CallersOfRank {
  using Waits = BlockedCallers::Waits;
  using Patience = BlockedCallers::Patience;
  struct CallWait {
    int awaited;
    std::thread::id caller;  // none when a work's
    bool is_fresh;           // said in this round
  };

  const uint64_t id;  // never used again, as an address may be
  const ForkGuard fork_guard;
  std::atomic<uint64_t> calls{0};  // which changes with each call

  std::mutex mutex;
  std::map<std::thread::id, int> callers;  // by thread: the waits that it is in
  std::map<const void*, CallWait> waits;   // by call
  size_t works = 0;                        // in progress
  uint64_t number = 0, rounds = 0;
  uint64_t calls_seen = 0, number_seen = 0;  // when quiet_since was set
  Deadline::Clock::time_point quiet_since = Deadline::Clock::now();

  explicit CallersOfRank(uint64_t of) : id(of) {}

  void add_to(std::thread::id caller, int waits_more) {
    const auto found = callers.find(caller);
    if (found != callers.end()) found->second += waits_more;
    ++number;
  }

  void add_wait(const void* call, int awaited, std::thread::id caller) {
    const auto [wait, is_new] = waits.try_emplace(call, CallWait{awaited, caller, true});
    if (is_new) add_to(caller, 1);
    if (wait->second.awaited != awaited) ++number;
    wait->second.awaited = awaited;
    wait->second.is_fresh = true;
    for (const auto& other : waits) {
      if (!other.second.is_fresh) return;
    }
    ++rounds;
    for (auto& other : waits) other.second.is_fresh = false;
  }

  Waits all_waits() const {
    Waits out{number, rounds, {}};
    for (const auto& wait : waits) out.awaited.insert(wait.second.awaited);
    return out;
  }

  // All works wait; so do all callers, but those that make no calls any more. The caller of a work
  // in progress comes back to it.
  bool has_nobody_going_on(const Patience& patience) {
    const int64_t quiet = quiet_ms();
    const auto of_works = std::count_if(waits.begin(), waits.end(), [](const auto& wait) {
      return wait.second.caller == std::thread::id();
    });
    if (static_cast<size_t>(of_works) < works) return false;
    const bool all_wait = std::all_of(callers.begin(), callers.end(),
                                      [](const auto& caller) { return caller.second > 0; });
    return all_wait ? quiet >= patience.new_ms : works == 0 && quiet >= patience.idle_ms;
  }

  int64_t quiet_ms() {
    const uint64_t now = calls.load(std::memory_order_relaxed);
    if (now != calls_seen || number != number_seen) quiet_since = Deadline::Clock::now();
    calls_seen = now;
    number_seen = number;
    return ms_since(quiet_since);
  }
};

namespace {

// The ranks whose caller a thread is.
struct Entered {
  std::vector<std::weak_ptr<CallersOfRank>> ranks;

  ~Entered() {
    for (const auto& rank : ranks) {
      const auto callers = rank.lock();
      if (!callers || callers->fork_guard.is_foreign()) continue;
      const std::lock_guard<std::mutex> lock(callers->mutex);
      callers->callers.erase(std::this_thread::get_id());
    }
  }
};

thread_local uint64_t last_entered = 0;
thread_local bool is_on_behalf = false;
thread_local std::thread::id deputed_by;

std::thread::id caller_of_this_thread() {
  return deputed_by == std::thread::id() ? std::this_thread::get_id() : deputed_by;
}

void enter_first(const std::shared_ptr<CallersOfRank>& callers) {
  Entered& entered = ThreadOwn<Entered>::get();
  {
    const std::lock_guard<std::mutex> lock(callers->mutex);
    if (!callers->callers.emplace(std::this_thread::get_id(), 0).second) return;
  }
  std::erase_if(entered.ranks, [](const auto& rank) { return rank.expired(); });
  entered.ranks.push_back(callers);
}

}  // namespace

BlockedCallers::BlockedCallers()
    : callers_([] {
        static std::atomic<uint64_t> last{0};
        return std::make_shared<CallersOfRank>(++last);
      }()) {}

BlockedCallers::Wait::Wait(BlockedCallers& callers) : callers_(callers.callers_) {
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  callers_->add_to(caller_of_this_thread(), 1);
}

BlockedCallers::Wait::~Wait() {
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  callers_->add_to(caller_of_this_thread(), -1);
}

BlockedCallers::Behalf::Behalf(BlockedCallers& callers) : callers_(callers.callers_) {
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  ++callers_->works;
  ++callers_->number;
  is_on_behalf = true;
}

BlockedCallers::Behalf::~Behalf() {
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  --callers_->works;
  ++callers_->number;
  is_on_behalf = false;
}

BlockedCallers::Deputy::Deputy(std::thread::id caller) noexcept { deputed_by = caller; }

BlockedCallers::Deputy::~Deputy() { deputed_by = {}; }

void BlockedCallers::enter() noexcept {
  std::atomic<uint64_t>& calls = callers_->calls;
  calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (last_entered == callers_->id || is_on_behalf || deputed_by != std::thread::id()) return;
  try {
    enter_first(callers_);
    last_entered = callers_->id;
  } catch (const std::bad_alloc&) {
  }
}

void BlockedCallers::begin_wait(const void* call, int awaited) noexcept {
  const auto caller = is_on_behalf ? std::thread::id() : caller_of_this_thread();
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  try {
    callers_->add_wait(call, awaited, caller);
  } catch (const std::bad_alloc&) {
  }
}

void BlockedCallers::end_wait(const void* call) noexcept {
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  const auto known = callers_->waits.find(call);
  if (known == callers_->waits.end()) return;
  callers_->add_to(known->second.caller, -1);
  callers_->waits.erase(known);
}

std::optional<BlockedCallers::Waits> BlockedCallers::waits(const Patience& patience) noexcept {
  const std::lock_guard<std::mutex> lock(callers_->mutex);
  try {
    if (callers_->has_nobody_going_on(patience)) return callers_->all_waits();
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

}  // namespace nxd
