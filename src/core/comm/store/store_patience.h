#pragma once

#include <cstdint>

namespace nxd {

// While it lives, each question of this thread to a store over a network takes no longer than this,
// whatever the store's own bound allows. The innermost counts.
class StorePatience {
 public:
  explicit StorePatience(int64_t ms);
  ~StorePatience();
  StorePatience(const StorePatience&) = delete;
  StorePatience& operator=(const StorePatience&) = delete;

  // The bound of a question to a store with this bound of its own.
  static int64_t bound_ms(int64_t own_ms);

 private:
  const int64_t outer_ms_;
};

}  // namespace nxd
