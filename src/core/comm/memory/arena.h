#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/fork_guard.h"
#include "core/comm/memory/shared_memory.h"

namespace nxd {

// A span of an arena, as its owner tells the peers.
struct ArenaPlace {
  int32_t descriptor = -1;
  uint32_t inode = 0;  // 0: the memory is no arena's
  uint64_t offset = 0;
};

// Memory of one rank that the ranks of its host can read and write: collectives work on it in
// place. It grows in chunks, which are kept until the arena ends, since peers have them mapped.
// Blocks are taken from the front, so that chunks made larger than needed cost no memory. A forked
// child, which has the same memory, takes nothing from it and gives nothing back. Any thread.
//
// Destructors give blocks back, so that needs no memory: a block keeps the entry that its place
// will have among the free ones.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // At least bytes bytes, aligned to 64. Contents undefined.
  void* allocate(size_t bytes);
  // The same for the library's own buffers, which may as well lie elsewhere: null once the arena
  // would grow beyond kOwnLimit, or the system has no memory for it.
  void* try_allocate(size_t bytes);
  void free(void* pointer);
  // The same for a caller of the library's. INVALID_ARGUMENT for a pointer that lend did not give,
  // such as one of the library's own buffers.
  void* lend(size_t bytes);
  void take_back(void* pointer);
  // From now on memory that is freed is not used again: a peer of a call that failed may still
  // write to it.
  void retire() noexcept { retired_.store(true, std::memory_order_relaxed); }
  // The place of a buffer; none when not all of it is in one chunk.
  ArenaPlace find(const void* data, size_t bytes) const;

  static constexpr size_t kOwnLimit = size_t{1} << 30;

  // Totals of all arenas of the process.
  struct Stats {
    uint64_t bytes_in_use = 0;    // asked for and not given back
    uint64_t bytes_reserved = 0;  // in chunks, touched or not
  };
  static Stats stats() noexcept;

 private:
  using Spans = std::map<size_t, size_t>;  // offset, size
  struct Chunk {
    SharedMemory memory;
    Spans free;
  };
  struct Block {
    size_t size = 0;
    Spans::node_type entry;  // to be among the free ones
    bool is_lent = false;
  };
  static Spans::node_type make_entry();
  static void put(Spans& spans, Spans::node_type entry, size_t offset, size_t size);
  Chunk* chunk_of(const void* data) const;
  void* take(Chunk& chunk, size_t bytes);
  void* allocate(size_t bytes, size_t limit);
  void free_locked(std::unordered_map<void*, Block>::iterator block);

  const ForkGuard fork_guard_;
  mutable std::mutex mutex_;
  std::atomic<bool> retired_{false};
  size_t reserved_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unordered_map<void*, Block> blocks_;
};

// The chunks of other ranks' arenas that this rank has met.
class PeerArenas {
 public:
  // Address of a peer's place in this process; size bytes from there are the peer's.
  char* at(int32_t pid, const ArenaPlace& place);

 private:
  std::mutex mutex_;
  std::map<std::pair<int32_t, uint32_t>, SharedMemory> chunks_;  // by process and inode
};

}  // namespace nxd
