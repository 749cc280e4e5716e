#include "core/kernels/openmp_runtimes.h"

#include <dlfcn.h>
#include <link.h>
#include <omp.h>
#include <pthread.h>

#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/kernels/memory_pool.h"

namespace nxd::kernels {
namespace {

// PyTorch's packages bring a copy under a name of their own, libgomp-a34b3233.so.1.
std::vector<std::string> paths_of_libgomp() {
  std::vector<std::string> paths;
  const auto look = [](dl_phdr_info* library, size_t, void* found) noexcept {
    const std::string_view path = library->dlpi_name;
    try {
      if (path.substr(path.rfind('/') + 1).starts_with("libgomp")) {
        static_cast<std::vector<std::string>*>(found)->emplace_back(path);
      }
    } catch (const std::exception&) {
      return 1;  // no memory: the search ends with those that it has
    }
    return 0;
  };
  ::dl_iterate_phdr(look, &paths);
  return paths;
}

void make_threads(int count) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([] {});
  } catch (const std::exception&) {
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  for (std::thread& thread : threads) thread.join();
}

// OpenMP's own since 5.0. PyTorch's packages bring an older runtime, with which a library that
// names the function cannot be loaded.
using Pause = int (*)(omp_pause_resource_t, int device);

// False where the threads that OpenMP keeps for this thread stay; pause may be null.
bool end_threads_of(Pause pause) noexcept {
  return pause && pause(omp_pause_soft, omp_get_initial_device()) == 0;
}

// A fork has of its parent's threads the one that forks. In libgomp its first region would wait for
// the others that are kept for it, so these end before, and start again with the parent's next
// region. Where they cannot, as within a region, the child does without. LLVM's runtime begins anew
// in a child by itself.
class ForkHandlers {
 public:
  ForkHandlers() noexcept {
    void* const libgomp = ::dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!libgomp) return;
    pause = reinterpret_cast<Pause>(::dlsym(libgomp, "omp_pause_resource"));
    set_threads = reinterpret_cast<SetThreads>(::dlsym(libgomp, "omp_set_num_threads"));
    try {
      // Handlers of a fork's beginning run last first: threads that end give memory to the pool.
      pool_watch_forks();
      ::pthread_atfork(&before, nullptr, &in_child);
    } catch (const std::exception&) {
      // Without memory children compute as OpenMP lets them.
    }
  }

 private:
  using SetThreads = void (*)(int count);

  static void before() noexcept { released = end_threads_of(pause); }
  static void in_child() noexcept {
    if (!released && set_threads) set_threads(1);
  }

  static Pause pause;
  static SetThreads set_threads;
  static thread_local bool released;
};

Pause ForkHandlers::pause = nullptr;
ForkHandlers::SetThreads ForkHandlers::set_threads = nullptr;
thread_local bool ForkHandlers::released = false;
const ForkHandlers fork_handlers;

// The function that a compiler calls for `#pragma omp parallel num_threads(threads)`.
using Parallel = void (*)(void (*region)(void*), void* data, unsigned threads, unsigned flags);

}  // namespace

void count_in_openmp(int threads) noexcept try {
  for (const std::string& path : paths_of_libgomp()) {
    void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    if (const auto parallel = reinterpret_cast<Parallel>(::dlsym(library, "GOMP_parallel"))) {
      make_threads(threads);
      parallel([](void*) {}, nullptr, static_cast<unsigned>(threads) + 1, 0);
    }
    ::dlclose(library);
  }
} catch (const std::exception&) {
  // Results do not depend on it.
}

void release_openmp() {
  const auto pause = reinterpret_cast<Pause>(::dlsym(RTLD_DEFAULT, "omp_pause_resource"));
  if (!pause) {
    fail(NXD_ERROR_UNSUPPORTED,
         "the OpenMP of this process is older than 5.0, and keeps its threads");
  }
  check_state(end_threads_of(pause), "OpenMP does not release its threads here");
}

}  // namespace nxd::kernels
