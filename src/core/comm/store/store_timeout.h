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

 private:
  const int64_t outer_ms_;
};

}  // namespace nxd
