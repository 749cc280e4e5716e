#include "core/pipeline/buffer_pool.h"

#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "core/comm/exchanged_buffer.h"

namespace nxd {

using Buffers = std::list<ExchangedBuffer>;  // which come back without memory

// Buffers that are lent out come back here, as long as the pool is open.
struct BufferPool::State {
  std::mutex mutex;
  bool open = true;
  std::map<size_t, Buffers> free;   // with an entry for each size that is lent out
  std::map<size_t, size_t> counts;  // of all buffers of a size
  uint64_t bytes = 0;

  void put_back(Buffers& buffers) noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!open) return;
    Buffers& own = free.at(buffers.front().bytes());
    own.splice(own.end(), buffers);
  }
};

BufferPool::BufferPool(std::shared_ptr<ProcessGroup> group)
    : group_(std::move(group)), state_(std::make_shared<State>()) {}

BufferPool::~BufferPool() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->open = false;
  state_->free.clear();
}

PipelineBuffer BufferPool::take(size_t bytes) {
  struct Loan {
    std::shared_ptr<State> state;
    Buffers buffer;  // one
    ~Loan() {
      if (!buffer.empty()) state->put_back(buffer);
    }
  };
  auto loan = std::make_shared<Loan>();
  loan->state = state_;
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Buffers& free = state_->free[bytes];
  size_t& count = state_->counts[bytes];
  if (free.empty()) {
    free.emplace_back(*group_, bytes);
    ++count;
    state_->bytes += bytes;
  }
  loan->buffer.splice(loan->buffer.end(), free, std::prev(free.end()));
  void* const data = loan->buffer.front().data();
  return {data, std::move(loan)};
}

void BufferPool::reserve(size_t bytes, size_t count) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Buffers& free = state_->free[bytes];
  for (size_t& made = state_->counts[bytes]; made < count; ++made) {
    free.emplace_back(*group_, bytes);
    state_->bytes += bytes;
  }
}

void BufferPool::clear() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  for (auto& [bytes, buffers] : state_->free) {
    state_->counts[bytes] -= buffers.size();
    state_->bytes -= bytes * buffers.size();
    buffers.clear();
  }
}

uint64_t BufferPool::bytes() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->bytes;
}

}  // namespace nxd
