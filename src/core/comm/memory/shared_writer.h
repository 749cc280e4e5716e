#pragma once

#include <cstddef>

namespace nxd {

// Writes to memory that other ranks have read, the faster of two ways.
//
// Plain stores are best between cores that share a cache. Between others each store waits until the
// line is fetched from afar, and streaming past the caches is five times as fast. A virtual machine
// may be moved from one to the other at any time. So the plain way is timed as it goes.
class SharedWriter {
 public:
  void copy(void* to, const void* from, size_t bytes);

 private:
  int slow_in_a_row_ = 0;
  int copies_to_stream_ = 0;
};

}  // namespace nxd
