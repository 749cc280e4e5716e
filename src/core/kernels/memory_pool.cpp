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
constexpr uint64_t kGapMark = 0x6E78645F67617073;

// One mapping of the system.
struct Slab {
  char* base;
  size_t size;
  size_t used;  // bytes handed out once, from the front
  size_t live;  // blocks in use
};

// Lies before each block, so that giving back needs no look-up, and before each gap: room of any
// size between blocks of a slab, made by a trim of free ones that lay side by side.
struct alignas(64) Header {
  uint64_t mark;
  Slab* slab;
  size_t size_class;  // of a block
  size_t requested;   // of a block; of a gap its size, with the header
  Header* next;       // in the list of free blocks, or of gaps
};
static_assert(sizeof(Header) == kPoolHeader);

size_t extent_of(const Header& header) {
  if (header.mark == kGapMark) return header.requested;
  return sizeof(Header) + pool_class_bytes(header.size_class);
}

// The huge pages behind the header of so many bytes that begin with one.
struct HugePages {
  char* begin;
  size_t bytes;
};
HugePages huge_pages_within(Header* header, size_t bytes) {
  const auto begin = round_up(reinterpret_cast<size_t>(header + 1), kHugePage);
  const auto end = (reinterpret_cast<size_t>(header) + bytes) / kHugePage * kHugePage;
  return {reinterpret_cast<char*>(begin), end > begin ? end - begin : 0};
}
size_t bytes_given_back(Header* gap) { return huge_pages_within(gap, gap->requested).bytes; }

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
    watch_forks_locked();
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
    trim_beyond_cap(0);
  }

  void watch_forks() {
    const std::lock_guard lock(mutex_);
    watch_forks_locked();
  }

 private:
  // Another thread may hold the mutex when the process forks; the child uses the pool too.
  void watch_forks_locked() {
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

  // Gives memory back when so many bytes more would exceed the cap.
  void trim_beyond_cap(size_t bytes) noexcept {
    if (stats_.cap > 0 && stats_.bytes_reserved + bytes > stats_.cap) trim_locked();
  }

  // A block of a class that has no free one.
  Header* carve(size_t size_class) {
    const size_t bytes = sizeof(Header) + pool_class_bytes(size_class);
    const bool in_slab = pool_class_bytes(size_class) <= kLargestInSlab;
    if (in_slab && gaps_) trim_beyond_cap(bytes);
    Header* header = in_slab ? take_from_gap(bytes) : nullptr;
    if (!header) {
      Slab* slab = nullptr;
      if (!in_slab) {
        slab = map(round_up(bytes, kHugePage));
      } else {
        if (!current_ || current_->size - current_->used < bytes) current_ = map(kSlabBytes);
        slab = current_;
      }
      header = reinterpret_cast<Header*>(slab->base + slab->used);
      slab->used += bytes;
      header->slab = slab;
    }
    header->size_class = size_class;
    ASAN_POISON_MEMORY_REGION(header + 1, pool_class_bytes(size_class));
    return header;
  }

  // The front of the first gap that has so much room, or null.
  Header* take_from_gap(size_t bytes) {
    for (Header** link = &gaps_; *link; link = &(*link)->next) {
      Header* const gap = *link;
      if (gap->requested < bytes) continue;
      stats_.bytes_reserved += bytes_given_back(gap);
      *link = gap->next;
      if (gap->requested > bytes) {
        auto* rest = reinterpret_cast<Header*>(reinterpret_cast<char*>(gap) + bytes);
        ASAN_UNPOISON_MEMORY_REGION(rest, sizeof(Header));
        *rest = {kGapMark, gap->slab, 0, gap->requested - bytes, nullptr};
        add_gap(link, rest);
      }
      return gap;
    }
    return nullptr;
  }

  // A header alone holds no block: it only says where the next one begins.
  void add_gap(Header** link, Header* gap) {
    if (gap->requested == sizeof(Header)) return;
    gap->next = *link;
    *link = gap;
    stats_.bytes_reserved -= bytes_given_back(gap);
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

  // Mappings without a live block go, and so do huge pages of others that have none.
  void trim_locked() noexcept {
    for (Slab* slab : slabs_) {
      if (slab->live > 0) mark_gaps(*slab);
    }
    for (; gaps_; gaps_ = gaps_->next) stats_.bytes_reserved += bytes_given_back(gaps_);
    for (Header*& head : free_) {
      Header** link = &head;
      while (*link) {
        if ((*link)->slab->live == 0 || (*link)->mark == kGapMark) {
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
    for (Slab* slab : slabs_) join_gaps(*slab);
  }

  // The end of what lies side by side from a header on and is no live block, or has the mark.
  template <class Belongs>
  static Header* end_of_run(Header* begin, const char* end, const Belongs& belongs) {
    Header* at = begin;
    while (reinterpret_cast<char*>(at) < end && belongs(*at)) at = after(at);
    return at;
  }
  static Header* after(Header* header) {
    return reinterpret_cast<Header*>(reinterpret_cast<char*>(header) + extent_of(*header));
  }
  static size_t distance(const Header* begin, const Header* end) {
    return static_cast<size_t>(reinterpret_cast<const char*>(end) -
                               reinterpret_cast<const char*>(begin));
  }

  // Marks the free blocks of a slab that give a huge page back together. They are in their lists
  // still.
  static void mark_gaps(Slab& slab) {
    const char* const end = slab.base + slab.used;
    for (auto* at = reinterpret_cast<Header*>(slab.base); reinterpret_cast<char*>(at) < end;) {
      Header* const stop =
          end_of_run(at, end, [](const Header& header) { return header.mark != kLiveMark; });
      if (stop == at) {
        at = after(at);
        continue;
      }
      const bool gives = huge_pages_within(at, distance(at, stop)).bytes > 0;
      while (at != stop) {
        Header* const next = after(at);
        if (gives && at->mark == kFreeMark) {
          at->requested = extent_of(*at);
          at->mark = kGapMark;
        }
        at = next;
      }
    }
  }

  // Makes one gap of marked blocks side by side, which are in no list.
  void join_gaps(Slab& slab) {
    const char* const end = slab.base + slab.used;
    for (auto* at = reinterpret_cast<Header*>(slab.base); reinterpret_cast<char*>(at) < end;) {
      Header* const stop =
          end_of_run(at, end, [](const Header& header) { return header.mark == kGapMark; });
      if (stop == at) {
        at = after(at);
        continue;
      }
      *at = {kGapMark, &slab, 0, distance(at, stop), nullptr};
      ASAN_POISON_MEMORY_REGION(at + 1, at->requested - sizeof(Header));
      const HugePages pages = huge_pages_within(at, at->requested);
      // The pages may stay where the system refuses: they are as good as given back.
      if (pages.bytes > 0) madvise(pages.begin, pages.bytes, MADV_DONTNEED);
      add_gap(&gaps_, at);
      at = stop;
    }
  }

  std::mutex mutex_;
  bool watches_forks_ = false;
  Header* free_[kPoolClasses] = {};
  Header* gaps_ = nullptr;
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

void pool_watch_forks() { Pool::instance().watch_forks(); }

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
