#include "core/kernels/team.h"

#include <omp.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "core/base/blocked_signals.h"
#include "core/base/callback_thread.h"
#include "core/base/core_count.h"
#include "core/base/cpu_pause.h"
#include "core/base/error.h"
#include "core/base/fork_guard.h"
#include "core/base/futex.h"
#include "core/base/profiler.h"
#include "core/base/thread_own.h"
#include "core/base/yield.h"
#include "core/kernels/openmp_runtimes.h"

namespace nxd::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// Bounds of the time for which a thread polls for the next region, and the caller for the end of
// one. Then a thread sleeps; the caller yields for a while first, since waking up takes it as long
// as many tasks do.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kYield = std::chrono::microseconds(500);
constexpr int kLooksPerClock = 32;

// A thread of a team that had no core for that long in that many regions shares it with others.
// Some may be idle threads of OpenMP's.
constexpr auto kLost = std::chrono::microseconds(200);
constexpr int kLostRegions = 3;

thread_local bool inside_region = false;

template <class Done>
bool spin(const Done& done) noexcept {
  const auto start = Clock::now();
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (done()) return true;
      cpu_pause();
    }
  } while (Clock::now() - start < kSpin);
  return false;
}

std::chrono::nanoseconds cpu_time_of_this_thread() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// If OpenMP binds its threads to places, the caller is bound to one, and a thread that it makes
// would be too. The thread goes to the place that OpenMP's thread of its index would have had.
void go_to_place(int index, int place_of_caller) noexcept {
  const int places = omp_get_num_places();
  if (omp_get_proc_bind() == omp_proc_bind_false || places <= 0 || place_of_caller < 0) return;
  const int place = (place_of_caller + index) % places;
  const auto n_ids = static_cast<size_t>(omp_get_place_num_procs(place));
  const std::unique_ptr<int[]> memory(new (std::nothrow) int[n_ids]);
  if (!memory) return;  // without its place it works as well
  const std::span<int> ids(memory.get(), n_ids);
  omp_get_place_proc_ids(place, ids.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int id : ids) CPU_SET(static_cast<size_t>(id), &set);
  sched_setaffinity(0, sizeof set, &set);
}

class Team {
 public:
  // threads: the caller and those that are made here.
  explicit Team(int threads)
      : size_(threads),
        may_spin_(threads <= usable_cores()),
        uncounted_(usable_cores() + 1 - threads) {
    const BlockedSignals blocked;
    const int place = omp_get_place_num();
    others_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 1; i < threads; ++i) others_.emplace_back([this, i, place] { live(i, place); });
    } catch (const std::exception&) {
      // The system has no more threads, or no memory for one: the others take all tasks.
    }
  }

  ~Team() {
    stop_.store(true, std::memory_order_relaxed);
    announce();
    for (std::thread& other : others_) other.join();
  }

  int size() const noexcept { return size_; }
  // The threads of a parent are not in its forked child.
  bool is_foreign() const noexcept { return fork_guard_.is_foreign(); }

  void run(int64_t tasks, TeamTask task, void* context) {
    task_ = task;
    context_ = context;
    const auto count = static_cast<uint32_t>(tasks);
    unfinished_.value.store(count, std::memory_order_relaxed);
    announced_.store(watched_ ? Clock::now() : Clock::time_point(), std::memory_order_relaxed);
    const uint32_t region = region_.value.load(std::memory_order_relaxed) + 1;
    open_.store(OpenTasks{region, count}, std::memory_order_release);
    announce();
    work(region);
    watched_ = wait() > kLost;
  }

 private:
  // The thread that looks whether it has a core, and tells OpenMP.
  static constexpr int kWatched = 1;

  // Tasks that nobody has taken. The caller may open the next region while a thread still looks for
  // more tasks of the last one; that thread has to see the announcement first.
  struct alignas(8) OpenTasks {
    uint32_t region, count;
  };
  static_assert(std::atomic<OpenTasks>::is_always_lock_free);

  void announce() noexcept {
    region_.value.fetch_add(1, std::memory_order_seq_cst);
    region_.wake_sleepers();
  }

  // Takes tasks of the region while there are some. A task that was taken keeps its region from
  // ending, so that task_ and context_ are those of its region.
  void work(uint32_t region) noexcept {
    OpenTasks open = open_.load(std::memory_order_acquire);
    while (open.region == region && open.count > 0) {
      const OpenTasks others{region, open.count - 1};
      if (!open_.compare_exchange_weak(open, others, std::memory_order_acquire)) continue;
      task_(context_, others.count);
      if (unfinished_.value.fetch_sub(1, std::memory_order_seq_cst) == 1)
        unfinished_.wake_sleepers();
      open = open_.load(std::memory_order_acquire);
    }
  }

  // How long it took, as far as the clock was asked.
  Clock::duration wait() noexcept {
    const auto done = [this] { return unfinished_.value.load(std::memory_order_acquire) == 0; };
    if (done() || (may_spin_ && spin(done))) return {};
    const auto start = Clock::now();
    while (Clock::now() - start < kYield) {
      if (done()) return Clock::now() - start;
      if (!try_yield()) break;
    }
    while (const uint32_t left = unfinished_.value.load(std::memory_order_acquire))
      unfinished_.sleep(left);
    return Clock::now() - start;
  }

  // Works, and counts the regions in which this thread had no core for a time, from their
  // announcement on. OpenMP hears of the team then: with as many threads as make more than there
  // are cores beside OpenMP's own, of which it has as many as the team.
  void work_watched(uint32_t region, Clock::time_point announced) {
    const auto cpu_time = cpu_time_of_this_thread();
    work(region);
    const auto used = cpu_time_of_this_thread() - cpu_time;
    if (Clock::now() - announced - used < kLost || ++lost_regions_ != kLostRegions) return;
    if (uncounted_ > 0 && uncounted_ < size_) count_in_openmp(uncounted_);
  }

  void live(int index, int place_of_caller) {
    const InternalThread internal;
    PhaseScope::leave_out_this_thread();
    go_to_place(index, place_of_caller);
    omp_set_num_threads(1);
    inside_region = true;
    for (;;) {
      const uint32_t region = region_.value.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_relaxed)) return;
      const auto announced = announced_.load(std::memory_order_relaxed);
      if (index == kWatched && announced != Clock::time_point()) {
        work_watched(region, announced);
      } else {
        work(region);
      }
      const auto changed = [&] { return region_.value.load(std::memory_order_acquire) != region; };
      if (may_spin_ && spin(changed)) continue;
      while (!changed()) region_.sleep(region);
    }
  }

  // Written by different threads at the same time, so on lines of their own.
  alignas(64) std::atomic<OpenTasks> open_{};
  alignas(64) Futex unfinished_;  // tasks that are not done
  alignas(64) Futex region_;      // changes with every region, and at the end
  std::atomic<bool> stop_{false};
  std::atomic<Clock::time_point> announced_{};  // of the region, if it is watched
  bool watched_ = false;                        // the last region ended late
  int lost_regions_ = 0;                        // of the watched thread's
  TeamTask task_ = nullptr;
  void* context_ = nullptr;
  const int size_;
  const bool may_spin_;
  const int uncounted_;  // threads
  const ForkGuard fork_guard_;
  std::vector<std::thread> others_;
};

struct DeleteTeam {
  // A team that cannot be joined is left as it is.
  void operator()(Team* team) const noexcept {
    if (!team->is_foreign()) delete team;
  }
};

std::unique_ptr<Team, DeleteTeam>& own_team() {
  return ThreadOwn<std::unique_ptr<Team, DeleteTeam>>::get();
}

}  // namespace

int team_size() noexcept { return inside_region || omp_in_parallel() ? 1 : omp_get_max_threads(); }

OneThread::OneThread() noexcept : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

void run_on_team(int threads, int64_t tasks, TeamTask task, void* context) {
  auto& team = own_team();
  if (team && (team->size() != threads || team->is_foreign())) team.reset();
  if (!team) team.reset(new Team(threads));
  const OneThread one;
  inside_region = true;
  team->run(tasks, task, context);
  inside_region = false;
}

void release_team() {
  check_state(!inside_region && !omp_in_parallel(),
              "inside a parallel region its threads cannot be released");
  own_team().reset();
  release_openmp();
}

}  // namespace nxd::kernels
