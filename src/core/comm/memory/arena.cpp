#include "core/comm/memory/arena.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/huge_page.h"
#include "core/base/round_up.h"

namespace nxd {
namespace {

constexpr size_t kChunk = size_t{64} << 20;

// Small blocks keep cache lines to themselves, large ones pages.
size_t granularity(size_t bytes) { return bytes < 4096 ? 64 : 4096; }

std::atomic<uint64_t> all_in_use{0}, all_reserved{0};

}  // namespace

Arena::Stats Arena::stats() noexcept { return {all_in_use.load(), all_reserved.load()}; }

Arena::~Arena() {
  for (const auto& [pointer, block] : blocks_) all_in_use -= block.size;
  all_reserved -= reserved_;
}

void* Arena::allocate(size_t bytes) { return allocate(bytes, SIZE_MAX); }

void* Arena::try_allocate(size_t bytes) {
  try {
    return allocate(bytes, kOwnLimit);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void* Arena::allocate(size_t bytes, size_t limit) {
  if (bytes > static_cast<size_t>(PTRDIFF_MAX) / 2) {
    fail(NXD_ERROR_OUT_OF_MEMORY, "arena: ", bytes, " bytes do not fit in memory");
  }
  check_state(!fork_guard_.is_foreign(),
              "arena: a forked child cannot take memory of its parent's");
  const size_t size = round_up(std::max<size_t>(bytes, 1), granularity(bytes));
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& chunk : chunks_) {
    if (void* block = take(*chunk, size)) return block;
  }
  const size_t room = std::max(kChunk, round_up(size, kHugePage));
  if (reserved_ + room > limit) return nullptr;
  chunks_.reserve(chunks_.size() + 1);
  auto chunk = std::make_unique<Chunk>();
  chunk->memory = SharedMemory::create(room);
  chunk->free[0] = chunk->memory.size();
  chunks_.push_back(std::move(chunk));
  reserved_ += room;
  all_reserved += room;
  return take(*chunks_.back(), size);
}

Arena::Spans::node_type Arena::make_entry() {
  Spans one;
  one.emplace(0, 0);
  return one.extract(one.begin());
}

void Arena::put(Spans& spans, Spans::node_type entry, size_t offset, size_t size) {
  entry.key() = offset;
  entry.mapped() = size;
  spans.insert(std::move(entry));
}

// First fit, from the front of the free span. All memory is taken before anything changes.
void* Arena::take(Chunk& chunk, size_t bytes) {
  const size_t unit = granularity(bytes);
  for (auto it = chunk.free.begin(); it != chunk.free.end(); ++it) {
    const auto [begin, size] = *it;
    const size_t start = round_up(begin, unit), end = start + bytes;
    if (end > begin + size) continue;
    void* pointer = chunk.memory.data() + start;
    Block block{bytes, make_entry()};
    Spans::node_type front;
    if (start > begin) front = make_entry();
    blocks_.emplace(pointer, std::move(block));
    Spans::node_type rest = chunk.free.extract(it);
    if (start > begin) put(chunk.free, std::move(front), begin, start - begin);
    if (end < begin + size) put(chunk.free, std::move(rest), end, begin + size - end);
    all_in_use += bytes;
    return pointer;
  }
  return nullptr;
}

void Arena::free(void* pointer) {
  if (fork_guard_.is_foreign()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto block = blocks_.find(pointer);
  check_internal(block != blocks_.end(), "arena: a pointer was given back that is not in use");
  free_locked(block);
}

void* Arena::lend(size_t bytes) {
  void* const pointer = allocate(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.at(pointer).is_lent = true;
  return pointer;
}

void Arena::take_back(void* pointer) {
  if (fork_guard_.is_foreign()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto block = blocks_.find(pointer);
  check_argument(block != blocks_.end() && block->second.is_lent,
                 "data: expected a pointer of nxd_arena_alloc");
  free_locked(block);
}

void Arena::free_locked(std::unordered_map<void*, Block>::iterator block) {
  void* const pointer = block->first;
  Chunk& chunk = *chunk_of(pointer);
  size_t begin = static_cast<size_t>(static_cast<char*>(pointer) - chunk.memory.data());
  size_t size = block->second.size;
  Spans::node_type entry = std::move(block->second.entry);
  blocks_.erase(block);
  all_in_use -= size;
  if (retired_.load(std::memory_order_relaxed)) return;
  auto next = chunk.free.lower_bound(begin);
  if (next != chunk.free.end() && begin + size == next->first) {
    size += next->second;
    next = chunk.free.erase(next);
  }
  if (next != chunk.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  put(chunk.free, std::move(entry), begin, size);
}

Arena::Chunk* Arena::chunk_of(const void* data) const {
  const char* at = static_cast<const char*>(data);
  for (const auto& chunk : chunks_) {
    if (at >= chunk->memory.data() && at < chunk->memory.data() + chunk->memory.size()) {
      return chunk.get();
    }
  }
  return nullptr;
}

ArenaPlace Arena::find(const void* data, size_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Chunk* chunk = chunk_of(data);
  if (!chunk) return {};
  const auto offset = static_cast<size_t>(static_cast<const char*>(data) - chunk->memory.data());
  if (bytes > chunk->memory.size() - offset) return {};
  const SharedMemory::Address address = chunk->memory.address();
  return {address.descriptor, address.inode, offset};
}

char* PeerArenas::at(int32_t pid, const ArenaPlace& place) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = chunks_.find({pid, place.inode});
  if (it == chunks_.end()) {
    SharedMemory memory = SharedMemory::open({pid, place.descriptor, place.inode});
    it = chunks_.emplace(std::pair{pid, place.inode}, std::move(memory)).first;
  }
  return it->second.data() + place.offset;
}

}  // namespace nxd
