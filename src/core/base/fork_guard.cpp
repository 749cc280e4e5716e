#include "core/base/fork_guard.h"

#include <pthread.h>

#include <atomic>

#include "core/base/error.h"

namespace nxd {
namespace {

std::atomic<uint32_t> generation{0};

}  // namespace

uint32_t ForkGuard::current() noexcept {
  // With the first object: a process without one has nothing to notice.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

void ForkGuard::fail_foreign(const char* name) {
  fail(NXD_ERROR_INVALID_STATE, name,
       ": this process was forked from the one that made it; objects cannot be used in a forked "
       "child");
}

}  // namespace nxd
