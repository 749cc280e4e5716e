#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace nxd::kernels {

// A process-wide cache of memory blocks in size classes, over mappings with huge pages. A training
// step asks for the same sizes again and again; from the second step on they come from the cache,
// without system calls or page faults.
//
// Bounded: before asking the system for more than 1.5 times the largest use so far (and 256 MiB),
// unused memory is given back.

// At least bytes bytes, aligned to 64; contents undefined. Zero bytes give a valid pointer too.
// Throws OUT_OF_MEMORY, also beyond the cap. Any thread.
void* pool_allocate(size_t bytes);

// Takes back a pointer of pool_allocate, or null. Any thread, at any time, also while the process
// shuts down: the pool is never destroyed.
void pool_free(void* pointer) noexcept;

struct PoolFree {
  void operator()(void* data) const noexcept { pool_free(data); }
};
using PoolBlock = std::unique_ptr<void, PoolFree>;

struct PoolStats {
  uint64_t bytes_in_use = 0;    // asked for and not given back
  uint64_t bytes_reserved = 0;  // held from the system
  uint64_t peak_bytes_in_use = 0;
  uint64_t allocations = 0;
  uint64_t system_allocations = 0;
  uint64_t cap = 0;  // 0: none
};
PoolStats pool_stats() noexcept;

// Has forks hold the pool, now and not with its first use: what is to be done before they do, such
// as to end threads that give memory back, is registered after this. Throws OUT_OF_MEMORY.
void pool_watch_forks();

// Gives unused memory back to the system.
void pool_trim() noexcept;

// Bounds the bytes in use; 0: no bound. Blocks in use stay.
void pool_set_cap(uint64_t bytes) noexcept;

// A block that grows and never shrinks; for scratch memory a thread keeps.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { pool_free(data_); }

  // At least bytes bytes, aligned to 64. The result of an earlier call is no longer valid.
  template <class T = void>
  T* get(size_t bytes) {
    reserve(bytes);
    return static_cast<T*>(data_);
  }

 private:
  void reserve(size_t bytes);

  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nxd::kernels
