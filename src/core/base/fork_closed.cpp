#include "core/base/fork_closed.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace nxd {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<int> descriptors;
};

// Never destroyed: sockets may be closed by threads that outlive main.
Registry& registry() {
  static Registry* const instance = [] {
    auto* made = new Registry;
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     for (const int fd : registry().descriptors) ::close(fd);
                     registry().descriptors.clear();
                     registry().mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

}  // namespace

void close_in_forked_children(int fd) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  r.descriptors.push_back(fd);
}

void forget_in_forked_children(int fd) noexcept {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::erase(r.descriptors, fd);
}

}  // namespace nxd
