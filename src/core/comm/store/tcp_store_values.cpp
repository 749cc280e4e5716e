#include "core/comm/store/tcp_store_values.h"

#include <sys/uio.h>

namespace nxd::tcp_store {
namespace {

// The nodes of the table and of the value, about.
constexpr size_t kEntryBytes = 192;
// Smaller values are copied into the answer: a reference would take more.
constexpr size_t kSharedFrom = 4096;
// A segment ends here, so that what was sent of a long queue is let go.
constexpr size_t kSegmentBytes = 16384;

}  // namespace

Value Values::find(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  return Value(found->second, &found->second->bytes);
}

size_t Values::size_of(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? 0 : found->second->bytes.size();
}

bool Values::set(const std::string& key, std::string value) {
  const size_t bytes = kEntryBytes + key.size() + value.size();
  const auto found = values_.find(key);
  // An answer that is still to be read keeps the old value.
  const bool frees = found != values_.end() && found->second.use_count() == 1;
  if (*held_ - (frees ? found->second->counted : 0) + bytes > limit_) return false;
  auto entry = std::make_shared<Entry>(std::move(value), bytes, held_);
  if (found != values_.end()) {
    found->second = std::move(entry);
  } else {
    values_.emplace(key, std::move(entry));
  }
  return true;
}

bool Values::append(const std::string& key, std::string_view more) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, std::string(more));
  Entry& entry = *found->second;
  if (found->second.use_count() > 1) return set(key, entry.bytes + std::string(more));
  if (*held_ + more.size() > limit_) return false;
  entry.bytes += more;
  entry.counted += more.size();
  *held_ += more.size();
  return true;
}

void Answers::put_copy(std::string_view bytes) {
  if (bytes.empty()) return;
  const bool needs_segment =
      segments_.empty() || segments_.back().value || segments_.back().own.size() >= kSegmentBytes;
  if (needs_segment) segments_.emplace_back();
  segments_.back().own += bytes;
  bytes_ += bytes.size();
}

void Answers::put_value(const Value& value) {
  put<uint64_t>(value->size());
  if (value->size() < kSharedFrom) return put_copy(*value);
  segments_.push_back({{}, value});
  bytes_ += value->size();
}

size_t Answers::front(iovec* segments, size_t most) const {
  size_t n = 0, skip = sent_;
  for (auto segment = segments_.begin(); segment != segments_.end() && n < most; ++segment) {
    const std::string& bytes = segment->bytes();
    segments[n++] = {const_cast<char*>(bytes.data()) + skip, bytes.size() - skip};
    skip = 0;
  }
  return n;
}

void Answers::remove(size_t bytes) {
  bytes_ -= bytes;
  sent_ += bytes;
  while (!segments_.empty() && sent_ >= segments_.front().bytes().size()) {
    sent_ -= segments_.front().bytes().size();
    segments_.pop_front();
  }
}

}  // namespace nxd::tcp_store
