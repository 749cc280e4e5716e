#pragma once

#include <cstdint>

namespace nxd {

// While it lives, each request of this thread to a store over a network takes no longer than this,
// whatever the store's own bound allows. The innermost counts.
class StoreTimeout {
 public:
  explicit StoreTimeout(int64_t ms);
  ~StoreTimeout();
  StoreTimeout(const StoreTimeout&) = delete;
  StoreTimeout& operator=(const StoreTimeout&) = delete;

  // The bound of a request to a store with this bound of its own.
  static int64_t bound_ms(int64_t own_ms);
  // The bound of each request of a wait for a key with this timeout: at least long enough for a
  // server that is busy, and for others to let go of a file.
  static int64_t bound_of_wait_ms(int64_t timeout_ms) {
    return timeout_ms < 1000 ? 1000 : timeout_ms;
  }

 private:
  const int64_t outer_ms_;
};

}  // namespace nxd
