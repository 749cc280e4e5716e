#pragma once

#include <cstddef>
#include <vector>

#include "core/comm/exchanged_buffer.h"

namespace nxd {

// Memory of a caller's for one call, else the library's own. Where it will be the caller's, but is
// not there yet, its data are null.
struct CallerWorkspace {
  bool given = false;
  void* data = nullptr;
  size_t bytes = 0;
};

// Memory that a call uses beside its arrays. A call first reserves all of its blocks, so that their
// sum can be asked for, then allocates them at once, while it can still be rejected.
class Scratch {
 public:
  enum class Use {
    kOwn,       // this rank's alone
    kExchanged  // read or written by other ranks' collectives
  };
  static constexpr size_t kAlignment = 64;

  Scratch() = default;
  Scratch(Scratch&&) noexcept = default;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  // The number of a block of so many elements, so many times.
  size_t reserve(int64_t count, int64_t times, nxd_dtype_t dtype, Use use);
  // Size of a workspace that may lie at any address; 0 when no block was reserved.
  size_t workspace_bytes() const;
  // From the workspace, where one was given. INVALID_ARGUMENT when it is too small.
  void allocate(const ProcessGroup& group, const CallerWorkspace& workspace);
  // For calls without ranks: none of the blocks is exchanged.
  void allocate();
  char* at(size_t block) const { return blocks_[block].data; }

 private:
  struct Block {
    size_t bytes;
    Use use;
    char* data = nullptr;
  };
  void allocate_own(Block& block);

  std::vector<Block> blocks_;
  std::vector<ExchangedBuffer> exchanged_;
  std::vector<void*> pooled_;
};

}  // namespace nxd
