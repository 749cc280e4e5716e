#include "core/base/fork_closed.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace nxd {
namespace {

struct Registry {
  std::mutex mutex;
  bool watches_forks = false;
  std::vector<int> descriptors;
};

// Never destroyed: sockets may be closed by threads that outlive main. Takes no memory.
Registry& registry() noexcept {
  alignas(Registry) static char place[sizeof(Registry)];
  static Registry* const instance = new (place) Registry;
  return *instance;
}

void watch_forks(Registry& r) {
  if (r.watches_forks) return;
  const int error =
      pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                     [] {
                       for (const int fd : registry().descriptors) ::close(fd);
                       registry().descriptors.clear();
                       registry().mutex.unlock();
                     });
  if (error != 0) throw std::bad_alloc();
  r.watches_forks = true;
}

}  // namespace

void close_in_forked_children(int fd) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  watch_forks(r);
  r.descriptors.push_back(fd);
}

void forget_in_forked_children(int fd) noexcept {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::erase(r.descriptors, fd);
}

}  // namespace nxd
