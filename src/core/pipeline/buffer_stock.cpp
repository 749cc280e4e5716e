#include "core/pipeline/buffer_stock.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/comm/exchanged_buffer.h"

namespace nxd {

// What buffers that are lent out come back to, as long as there is somebody to want them.
struct BufferStock::Shelf {
  std::mutex mutex;
  bool open = true;
  std::map<size_t, std::vector<ExchangedBuffer>> free;
  std::map<size_t, size_t> counts;  // of all buffers of a size
  uint64_t bytes = 0;

  void put_back(ExchangedBuffer buffer) noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!open) return;
    free[buffer.bytes()].push_back(std::move(buffer));
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
    ExchangedBuffer buffer;
    ~Loan() {
      if (buffer.data()) shelf->put_back(std::move(buffer));
    }
  };
  auto loan = std::make_shared<Loan>();
  loan->shelf = shelf_;
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  auto& free = shelf_->free[bytes];
  if (free.empty()) {
    free.emplace_back(*group_, bytes);
    ++shelf_->counts[bytes];
    shelf_->bytes += bytes;
  }
  loan->buffer = std::move(free.back());
  free.pop_back();
  void* const data = loan->buffer.data();
  return {data, std::move(loan)};
}

void BufferStock::reserve(size_t bytes, size_t count) {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  for (size_t& made = shelf_->counts[bytes]; made < count; ++made) {
    shelf_->free[bytes].emplace_back(*group_, bytes);
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
