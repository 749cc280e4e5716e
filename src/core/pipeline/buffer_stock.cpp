#include "core/pipeline/buffer_stock.h"

#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "core/comm/exchanged_buffer.h"

namespace nxd {

using Buffers = std::list<ExchangedBuffer>;  // which come back without memory

// Buffers that are lent out come back here, as long as the stock is open.
struct BufferStock::Shelf {
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

BufferStock::BufferStock(std::shared_ptr<ProcessGroup> group)
    : group_(std::move(group)), shelf_(std::make_shared<Shelf>()) {}

BufferStock::~BufferStock() {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  shelf_->open = false;
  shelf_->free.clear();
}

PipelineBuffer BufferStock::take(size_t bytes) {
  struct Loan {
    std::shared_ptr<Shelf> shelf;
    Buffers buffer;  // one
    ~Loan() {
      if (!buffer.empty()) shelf->put_back(buffer);
    }
  };
  auto loan = std::make_shared<Loan>();
  loan->shelf = shelf_;
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  Buffers& free = shelf_->free[bytes];
  size_t& count = shelf_->counts[bytes];
  if (free.empty()) {
    free.emplace_back(*group_, bytes);
    ++count;
    shelf_->bytes += bytes;
  }
  loan->buffer.splice(loan->buffer.end(), free, std::prev(free.end()));
  void* const data = loan->buffer.front().data();
  return {data, std::move(loan)};
}

void BufferStock::reserve(size_t bytes, size_t count) {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  Buffers& free = shelf_->free[bytes];
  for (size_t& made = shelf_->counts[bytes]; made < count; ++made) {
    free.emplace_back(*group_, bytes);
    shelf_->bytes += bytes;
  }
}

void BufferStock::clear() {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  for (auto& [bytes, buffers] : shelf_->free) {
    shelf_->counts[bytes] -= buffers.size();
    shelf_->bytes -= bytes * buffers.size();
    buffers.clear();
  }
}

uint64_t BufferStock::bytes() const {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  return shelf_->bytes;
}

}  // namespace nxd
