#include "core/kernels/memory_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "core/base/error.h"
#include "core/base/huge_page.h"
#include "core/base/log.h"
#include "core/base/round_up.h"
#include "core/kernels/pool_classes.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(0)
#endif

namespace nxd::kernels {
namespace {

constexpr size_t kSlack = size_t{256} << 20;
constexpr uint64_t kLiveMark = 0x6E78645F6C697665;
constexpr uint64_t kFreeMark = 0x6E78645F66726565;

// One mapping of the system.
struct Slab {
  char* base;
  size_t size;
  size_t used;  // bytes handed out once, from the front
  size_t live;  // blocks in use
};

// Lies before each block, so that giving back needs no look-up.
struct alignas(64) Header {
  uint64_t mark;
  Slab* slab;
  size_t size_class;
  size_t requested;
  Header* next;  // in the list of free blocks
};
static_assert(sizeof(Header) == kPoolHeader);

class Pool {
 public:
  // Never destroyed: threads and static objects of the host give memory back at any time. Takes no
  // memory, also the first time.
  static Pool& instance() noexcept {
    alignas(Pool) static char place[sizeof(Pool)];
    static Pool* const pool = new (place) Pool;
    return *pool;
  }

  void* allocate(size_t bytes) {
    const size_t size_class = pool_class(bytes);
    const std::lock_guard lock(mutex_);
    check_cap(bytes);
    watch_forks();
    Header* header = free_[size_class];
    if (header) {
      free_[size_class] = header->next;
    } else {
      header = carve(size_class);
    }
    header->mark = kLiveMark;
    header->requested = bytes;
    ASAN_UNPOISON_MEMORY_REGION(header + 1, bytes);
    ++header->slab->live;
    ++stats_.allocations;
    stats_.bytes_in_use += bytes;
    stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
    return header + 1;
  }

  // False for what is no live block of the pool.
  bool release(void* pointer) {
    Header* header = static_cast<Header*>(pointer) - 1;
    const std::lock_guard lock(mutex_);
    if (header->mark != kLiveMark) return false;
    header->mark = kFreeMark;
    ASAN_POISON_MEMORY_REGION(header + 1, pool_class_bytes(header->size_class));
    header->next = free_[header->size_class];
    free_[header->size_class] = header;
    --header->slab->live;
    stats_.bytes_in_use -= header->requested;
    return true;
  }

  PoolStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    trim_locked();
  }

  void set_cap(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.cap = bytes;
  }

 private:
  // Another thread may hold the mutex when the process forks; the child uses the pool too.
  void watch_forks() {
    if (watches_forks_) return;
    const int error =
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().mutex_.unlock(); });
    if (error != 0) throw std::bad_alloc();
    watches_forks_ = true;
  }

  void check_cap(size_t bytes) const {
    if (stats_.cap == 0 || stats_.bytes_in_use + bytes <= stats_.cap) return;
    fail(NXD_ERROR_OUT_OF_MEMORY, "memory pool: ", bytes, " bytes were asked for, ",
         stats_.bytes_in_use, " are in use, and the cap is ", stats_.cap);
  }

  // A block of a class that has no free one.
  Header* carve(size_t size_class) {
    const size_t bytes = sizeof(Header) + pool_class_bytes(size_class);
    Slab* slab = nullptr;
    if (pool_class_bytes(size_class) > kLargestInSlab) {
      slab = map(round_up(bytes, kHugePage));
    } else {
      if (!current_ || current_->size - current_->used < bytes) current_ = map(kSlabBytes);
      slab = current_;
    }
    auto* header = reinterpret_cast<Header*>(slab->base + slab->used);
    slab->used += bytes;
    header->slab = slab;
    header->size_class = size_class;
    ASAN_POISON_MEMORY_REGION(header + 1, pool_class_bytes(size_class));
    return header;
  }

  Slab* map(size_t size) {
    size_t bound = stats_.peak_bytes_in_use + stats_.peak_bytes_in_use / 2 + kSlack;
    if (stats_.cap > 0) bound = std::min(bound, stats_.cap);
    if (stats_.bytes_reserved + size > bound) trim_locked();
    // All that may fail comes before the mapping, which has no owner until it is a slab.
    if (slabs_.size() == slabs_.capacity()) slabs_.reserve(2 * slabs_.size() + 1);
    auto slab = std::make_unique<Slab>();
    char* base = map_aligned(size);
    if (!base) {
      trim_locked();
      base = map_aligned(size);
    }
    if (!base) fail(NXD_ERROR_OUT_OF_MEMORY, "memory pool: the system gave no ", size, " bytes");
    ++stats_.system_allocations;
    stats_.bytes_reserved += size;
    *slab = {base, size, 0, 0};
    slabs_.push_back(slab.release());
    return slabs_.back();
  }

  // Aligned to huge pages, which the kernel is then asked to use; null when there is no memory.
  static char* map_aligned(size_t size) {
    const size_t asked = size + kHugePage;
    void* mapped = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* start = static_cast<char*>(mapped);
    char* base = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(start), kHugePage));
    if (base != start) munmap(start, static_cast<size_t>(base - start));
    char* end = start + asked;
    if (base + size != end) munmap(base + size, static_cast<size_t>(end - base) - size);
    madvise(base, size, MADV_HUGEPAGE);
    return base;
  }

  void trim_locked() noexcept {
    for (Header*& head : free_) {
      Header** link = &head;
      while (*link) {
        if ((*link)->slab->live == 0) {
          *link = (*link)->next;
        } else {
          link = &(*link)->next;
        }
      }
    }
    const auto gone = std::partition(slabs_.begin(), slabs_.end(),
                                     [](const Slab* slab) { return slab->live > 0; });
    for (auto it = gone; it != slabs_.end(); ++it) {
      if (*it == current_) current_ = nullptr;
      ASAN_UNPOISON_MEMORY_REGION((*it)->base, (*it)->size);
      munmap((*it)->base, (*it)->size);
      stats_.bytes_reserved -= (*it)->size;
      delete *it;
    }
    slabs_.erase(gone, slabs_.end());
  }

  std::mutex mutex_;
  bool watches_forks_ = false;
  Header* free_[kPoolClasses] = {};
  std::vector<Slab*> slabs_;
  Slab* current_ = nullptr;
  PoolStats stats_;
};

}  // namespace

void* pool_allocate(size_t bytes) {
  check_argument(bytes <= SIZE_MAX / 4, "memory pool: expected a size, got ", bytes, " bytes");
  return Pool::instance().allocate(bytes);
}

void pool_free(void* pointer) noexcept {
  if (!pointer) return;
  if (!Pool::instance().release(pointer)) {
    log(NXD_LOG_ERROR, "memory pool: a pointer was given back that is not in use; it is ignored");
  }
}

PoolStats pool_stats() noexcept { return Pool::instance().stats(); }

void pool_trim() noexcept { Pool::instance().trim(); }

void pool_set_cap(uint64_t bytes) noexcept { Pool::instance().set_cap(bytes); }

void Workspace::reserve(size_t bytes) {
  if (data_ && bytes <= size_) return;
  pool_free(data_);
  data_ = nullptr;
  data_ = pool_allocate(bytes);
  size_ = bytes;
}

}  // namespace nxd::kernels
