// Calls every function of the C interface with whatever a caller could hand over. Sequences of
// calls are made by child processes, each from a seed of its own, in a world of one rank or of two
// threads; a child that ends by a signal, or whose call does not return, is reported, and the next
// seed goes on.
//
// usage: fuzz_api_... [--seed N] [--seeds COUNT] [--calls COUNT] [--ranks 1|2] [--seconds N]
//                     [--all] [--print]
//   --seed    the first; with --seeds 1 --print it makes one sequence again, call by call
//   --ranks   in each world; by default every fourth seed has two
//   --all     fail when a function was never called, or never called with success
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "draw.h"
#include "support/temp_dir.h"
#include "watch.h"

// Memory that there is none of is an exception in every build, a sanitizer's too.
void* operator new(size_t size) {
  if (void* block = std::malloc(size > 0 ? size : 1)) return block;
  throw std::bad_alloc();
}
void* operator new[](size_t size) { return operator new(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }

extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check(void);
extern "C" __attribute__((weak)) void __asan_init(void);
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024:alloc_dealloc_mismatch=0:"
         "detect_leaks=1:leak_check_at_exit=0:detect_stack_use_after_return=0";
}

namespace nxd_fuzz {

Watch* watch = nullptr;

namespace {

constexpr int kHangSeconds = 60;
constexpr int kLeakEvery = 16;  // seeds
constexpr rlim_t kMostMemory = rlim_t{4} << 30;

struct Settings {
  uint64_t seed = 1, seeds = 100, calls = 300;
  int ranks = 0, seconds = 0;
  bool all = false, print = false;
};

size_t index_of(const char* function) {
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (kFunctions[i].name == function) return i;
  }
  return 0;
}

// Calls that end a rank's world, or are costly, come now and then only.
bool is_rare(const char* name) {
  for (const char* rare :
       {"nxd_memory_set_cap", "nxd_context_abort", "nxd_group_abort", "nxd_context_finalize",
        "nxd_context_destroy", "nxd_spawn", "nxd_measure_gemm_peak", "nxd_destroy_model_parallel",
        "nxd_store_create_tcp"}) {
    if (std::strcmp(name, rare) == 0) return true;
  }
  return false;
}

// Where the first rank sends, the second receives.
const Function& counterpart(const Function& function, int rank) {
  static const std::map<std::string, std::string> kPairs = {
      {"nxd_send", "nxd_receive"},
      {"nxd_receive", "nxd_send"},
      {"nxd_send_async", "nxd_receive_async"},
      {"nxd_receive_async", "nxd_send_async"}};
  const auto found = kPairs.find(function.name);
  if (rank == 0 || found == kPairs.end()) return function;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (found->second == kFunctions[i].name) return kFunctions[i];
  }
  return function;
}

// A world of one has its context made by calls as well; ranks that share a world have one each.
bool is_for(const Draw& draw, const char* name) {
  return draw.is_alone() ||
         (std::strcmp(name, "nxd_context_create") != 0 && std::strcmp(name, "nxd_spawn") != 0);
}

void join_world(Draw& draw, int ranks, nxd_store_t* store, uint64_t seed) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = draw.rank();
  options.size = ranks;
  options.store = store;
  options.timeout_ms = 2000;
  if (seed % 3 == 1) options.transport = NXD_TRANSPORT_GLOO;
  nxd_context_t* ctx = nullptr;
  if (nxd_context_create(&options, &ctx) != NXD_OK) return;  // as when memory has come to its end
  draw.keep(ctx, nullptr);
  nxd_group_t* world = nullptr;
  if (nxd_context_get_world_group(ctx, &world) == NXD_OK) draw.keep(world, ctx);
  if (seed % 4 < 3) nxd_init_model_parallel(ctx, nullptr);
  if (seed % 5 < 3) furnish(draw, ctx);
}

// The calls of one rank. Ranks draw the same functions, and the same arguments mostly.
void run_rank(int rank, int ranks, nxd_store_t* store, uint64_t seed, uint64_t calls) {
  Draw draw(rank, ranks);
  join_world(draw, ranks, store, seed);
  Random choice(seed * 2 + 1);
  int failed_worlds = 0;
  for (uint64_t i = 0; i < calls; ++i) {
    const uint64_t arguments = choice.next();
    const Function& function = kFunctions[choice.next() % kFunctionCount];
    const int mood = choice.below(64);
    if ((is_rare(function.name) && mood >= 8) || !is_for(draw, function.name)) continue;
    // One rank of a world is given other arguments than its peers.
    const bool differs = rank > 0 && mood >= 60;
    draw.start(arguments + (differs ? 1 : 0));
    counterpart(function, rank).call(draw);
    if (ranks == 1) continue;
    const nxd_status_t status = draw.last_status();
    failed_worlds += status == NXD_ERROR_TIMEOUT || status == NXD_ERROR_PEER_LOST ? 1 : 0;
    // Calls on a lost world fail at once or wait in vain; a few such calls are enough.
    if (failed_worlds > 3 || draw.pool<nxd_context_t>().empty()) break;
  }
  draw.start(seed);
  destroy_all(draw);
}

[[noreturn]] void run_seed(const Settings& settings, uint64_t seed, const std::string& directory) {
  ::setenv("NXD_TIMEOUT_MS", "2000", 1);
  ::setenv("NXD_CPU_MODE", "1", 1);
  ::setenv("NXD_LOG_LEVEL", "off", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  if (::chdir(directory.c_str()) != 0) std::abort();
  // Where nxd_master_print writes.
  if (!settings.print && !std::freopen("/dev/null", "w", stdout)) std::abort();
  if (!__asan_init) {  // whose shadow takes all of it
    const rlimit limit{kMostMemory, kMostMemory};
    ::setrlimit(RLIMIT_DATA, &limit);
  }
  const int ranks = settings.ranks > 0 ? settings.ranks : seed % 4 == 3 ? 2 : 1;
  if (ranks == 1) {
    run_rank(0, 1, nullptr, seed, settings.calls);
  } else {
    nxd_store_t* store = nullptr;
    if (nxd_store_create_local(&store) != NXD_OK) std::abort();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(run_rank, rank, ranks, store, seed, settings.calls);
    }
    for (std::thread& thread : threads) thread.join();
    nxd_store_destroy(store);
  }
  nxd_memory_set_cap(0);
  nxd_log_set_callback(nullptr, nullptr, nullptr);
  if (__lsan_do_recoverable_leak_check && seed % kLeakEvery == 0 &&
      __lsan_do_recoverable_leak_check() != 0) {
    std::fprintf(stderr, "api: memory leaked\n");
    std::abort();
  }
  ::_exit(0);
}

double now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// How a child ended: 0, or the signal, or -1 when a call did not return.
int await(pid_t pid) {
  uint64_t calls = 0;
  double since = now();
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      if (WIFSIGNALED(status)) return WTERMSIG(status);
      return WEXITSTATUS(status) == 0 ? 0 : 256 + WEXITSTATUS(status);
    }
    uint64_t made = 0;
    for (const auto& rank : watch->ranks) made += rank.calls;
    if (made != calls) {
      calls = made;
      since = now();
    } else if (now() - since > kHangSeconds) {
      ::kill(pid, SIGABRT);  // a core, where one is wanted
      ::usleep(200000);
      ::kill(-pid, SIGKILL);
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return -1;
    }
    ::usleep(2000);
  }
}

bool run_child(const Settings& settings, uint64_t seed) {
  for (auto& rank : watch->ranks) {
    rank.calls = 0;
    rank.function = "";
  }
  const nxd_test::TempDir directory;
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    std::perror("api: fork");
    std::exit(1);
  }
  if (pid == 0) {
    ::setpgid(0, 0);
    run_seed(settings, seed, directory.path());
  }
  const int outcome = await(pid);
  if (outcome == 0) return true;
  std::fprintf(stderr, "api: seed %llu: ", static_cast<unsigned long long>(seed));
  if (outcome < 0) std::fprintf(stderr, "a call does not return:");
  if (outcome > 0 && outcome < 256)
    std::fprintf(stderr, "signal %d (%s) in", outcome, strsignal(outcome));
  if (outcome >= 256) std::fprintf(stderr, "exit %d in", outcome - 256);
  for (const auto& rank : watch->ranks) {
    if (rank.calls == 0) continue;
    std::fprintf(stderr, " %s (call %llu)", rank.function.load(),
                 static_cast<unsigned long long>(rank.calls.load()));
  }
  std::fprintf(stderr, "\n");
  return false;
}

// Prints how much of the interface was called; false when some of it was not.
bool report(uint64_t seeds, uint64_t failures) {
  uint64_t calls = 0;
  size_t called = 0, succeeded = 0;
  std::string never, never_good;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const char* name = kFunctions[i].name;
    calls += watch->calls[i];
    called += watch->calls[i] > 0 ? 1 : 0;
    if (watch->calls[i] == 0) never += std::string(" ") + name;
    const bool good = !kFunctions[i].gives_status || watch->successes[i] > 0;
    succeeded += good ? 1 : 0;
    if (watch->calls[i] > 0 && !good) never_good += std::string(" ") + name;
  }
  std::printf(
      "api: %llu calls in %llu sequences, %zu of %zu functions called, %zu with success, %llu "
      "failures\n",
      static_cast<unsigned long long>(calls), static_cast<unsigned long long>(seeds), called,
      kFunctionCount, succeeded, static_cast<unsigned long long>(failures));
  if (!never.empty()) std::printf("api: never called:%s\n", never.c_str());
  if (!never_good.empty()) std::printf("api: never successful:%s\n", never_good.c_str());
  return never.empty() && never_good.empty();
}

bool read_arguments(int argc, char** argv, Settings& out) {
  const option options[] = {
      {"all", no_argument, nullptr, 'a'},           {"print", no_argument, nullptr, 'p'},
      {"seed", required_argument, nullptr, 's'},    {"seeds", required_argument, nullptr, 'n'},
      {"calls", required_argument, nullptr, 'c'},   {"ranks", required_argument, nullptr, 'r'},
      {"seconds", required_argument, nullptr, 't'}, {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    const uint64_t value = optarg ? std::strtoull(optarg, nullptr, 10) : 0;
    switch (c) {
      case 'a': out.all = true; break;
      case 'p': out.print = true; break;
      case 's': out.seed = value; break;
      case 'n': out.seeds = value; break;
      case 'c': out.calls = value; break;
      case 'r': out.ranks = static_cast<int>(value); break;
      case 't': out.seconds = static_cast<int>(value); break;
      default: return false;
    }
  }
  return optind == argc && out.ranks >= 0 && out.ranks <= 2;
}

}  // namespace

void watch_call(int rank, const char* function) {
  Watch::Rank& of = watch->ranks[rank];
  of.function = function;
  ++of.calls;
  ++watch->calls[index_of(function)];
  if (watch->prints) {
    std::fprintf(stderr, "rank %d call %llu: %s\n", rank,
                 static_cast<unsigned long long>(of.calls.load()), function);
  }
}

void watch_return(int rank, nxd_status_t status) {
  if (status == NXD_OK) ++watch->successes[index_of(watch->ranks[rank].function)];
  if (watch->prints) {
    std::fprintf(stderr, "rank %d:   %s%s%s\n", rank, nxd_status_string(status),
                 status == NXD_OK ? "" : ": ", status == NXD_OK ? "" : nxd_last_error());
  }
}

int run(int argc, char** argv) {
  Settings settings;
  if (!read_arguments(argc, argv, settings)) {
    std::fprintf(stderr,
                 "usage: %s [--seed N] [--seeds COUNT] [--calls COUNT] [--ranks 1|2] [--seconds N] "
                 "[--all] [--print]\n",
                 argv[0]);
    return 2;
  }
  void* shared =
      ::mmap(nullptr, sizeof(Watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || kFunctionCount > Watch::kMostFunctions) return 1;
  watch = new (shared) Watch();
  watch->prints = settings.print;
  const double end = now() + settings.seconds;
  uint64_t seeds = 0, failures = 0;
  for (; settings.seconds > 0 ? now() < end : seeds < settings.seeds; ++seeds) {
    failures += run_child(settings, settings.seed + seeds) ? 0 : 1;
  }
  const bool whole = report(seeds, failures);
  if (failures > 0) {
    std::printf("api: make a sequence again: %s --seed SEED --seeds 1 --calls %llu --print\n",
                argv[0], static_cast<unsigned long long>(settings.calls));
  }
  return failures > 0 || (settings.all && !whole) ? 1 : 0;
}

}  // namespace nxd_fuzz

int main(int argc, char** argv) {
  if (std::getenv("NXD_SPAWNED")) return 0;  // nxd_spawn without a program starts this one again
  return nxd_fuzz::run(argc, argv);
}
