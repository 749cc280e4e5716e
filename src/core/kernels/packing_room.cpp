#include "core/kernels/packing_room.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/round_up.h"

namespace nxd::kernels {
namespace {

// The sanitizers' malloc keeps freed blocks apart for a time.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kKeepsRoom = true;
#else
constexpr bool kKeepsRoom = false;
#endif

// The sizes are those of oneDNN's widest loops, for AVX-512; blocks are padded to full tiles.
constexpr int64_t kColumns = 10000, kRows = 384, kDepth = 384, kLeastDepth = 128;
constexpr int64_t kTile = 48;
// Two pages between the blocks, and what glibc adds to a size to align it.
constexpr size_t kAround = size_t{3} << 12;

// oneDNN's alignment; before a block of glibc is its size, and no block is smaller than kLeast.
constexpr size_t kAlignment = 128, kSizeField = 8, kLeast = 32;
// glibc frees so many bytes behind an aligned block. Its cache takes fewer blocks of one size: 7,
// or 16 from 2.42 on.
constexpr size_t kBehindAligned = kAlignment + kLeast + 2 * kSizeField;
constexpr size_t kCached = 17;

void fill_cache() {
  void* blocks[kCached];
  for (void*& block : blocks) block = std::malloc(kBehindAligned - kSizeField);
  for (void* block : blocks) std::free(block);
}

}  // namespace

size_t packing_bytes(int64_t rows, int64_t columns, int64_t depth) {
  const int64_t lines = std::min(columns, kColumns) + std::min(rows, kRows) + 2 * kTile;
  const int64_t deep = std::clamp(depth, kLeastDepth, kDepth);
  return static_cast<size_t>(lines * deep) * sizeof(float);
}

PackingRoom::~PackingRoom() { std::free(front_); }

// Without memory there is no room, and oneDNN takes what there is.
void PackingRoom::reserve(size_t bytes) {
  if (front_ && bytes <= size_) return;
  std::free(front_);
  size_ = std::max(size_, bytes);
  // glibc maps a large block by itself at first. Once it has been freed one of its size comes from
  // where small ones lie, too, unless the environment or the program says otherwise.
  void* volatile mapped = std::malloc(size_);
  std::free(mapped);
  front_ = std::malloc(size_);
}

PackingRoom::Lent::Lent(PackingRoom& room, size_t bytes) : room_(room) {
  if (!kKeepsRoom) return;
  room_.reserve(bytes + kAround);
  if (!room_.front_) return;
  fill_cache();
  const auto begin = reinterpret_cast<size_t>(room_.front_);
  const size_t front = round_up(begin + kLeast, kAlignment) - begin - kSizeField;
  if (void* held = std::realloc(room_.front_, front)) room_.front_ = held;
}

PackingRoom::Lent::~Lent() {
  if (!room_.front_) return;
  if (void* held = std::realloc(room_.front_, room_.size_)) room_.front_ = held;
}

}  // namespace nxd::kernels
