#include "core/comm/store/tcp_store_request.h"

#include <optional>

namespace nxd::tcp_store {
namespace {

// The strings of a request (of each item, when it starts with a count), the first of which is a
// key, and the bytes after them.
struct Shape {
  uint64_t fields;
  size_t tail;
  bool has_count;
};

std::optional<Shape> shape_of(uint8_t query) {
  switch (query) {
    case kValidate:
    case kPing: return Shape{0, sizeof(uint32_t), false};
    case kHello: return Shape{0, sizeof(Hello), false};
    case kProve: return Shape{0, sizeof(Proof), false};
    case kGetNumKeys:
    case kCancelWait: return Shape{0, 0, false};
    case kGet:
    case kDeleteKey: return Shape{1, 0, false};
    case kAdd:
    case kCheckedAdd: return Shape{1, sizeof(int64_t), false};
    case kSet:
    case kCheckedSet:
    case kAppend: return Shape{2, 0, false};
    case kCompareSet: return Shape{3, 0, false};
    case kCheck:
    case kWait:
    case kMultiGet: return Shape{1, 0, true};
    case kMultiSet: return Shape{2, 0, true};
    default: return std::nullopt;
  }
}

uint64_t number_at(std::string_view bytes, size_t at) {
  uint64_t number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

RequestScanner::State RequestScanner::advance(std::string_view bytes) {
  if (bytes.empty()) return State::kIncomplete;
  if (at_ == 0) {
    const auto shape = shape_of(static_cast<uint8_t>(bytes[0]));
    if (!shape) return State::kRejected;
    fields_left_ = fields_ = shape->fields;
    tail_ = shape->tail;
    has_count_ = shape->has_count;
    at_ = 1;
  }
  const auto has_number = [&] { return bytes.size() >= at_ + sizeof(uint64_t); };
  if (has_count_) {
    if (!has_number()) return State::kIncomplete;
    const uint64_t count = number_at(bytes, at_);
    if (count > kCountLimit) return State::kRejected;
    fields_left_ *= count;
    at_ += sizeof count;
    has_count_ = false;
  }
  while (fields_left_ > 0) {
    if (!has_number()) return State::kIncomplete;
    const uint64_t size = number_at(bytes, at_);
    const bool is_key = fields_left_ % fields_ == 0;
    if (size > (is_key ? kKeyLimit : kValueLimit)) return State::kRejected;
    at_ += sizeof size + size;
    if (at_ > kRequestLimit) return State::kRejected;
    --fields_left_;
  }
  at_ += tail_;
  tail_ = 0;
  return bytes.size() < at_ ? State::kIncomplete : State::kWhole;
}

}  // namespace nxd::tcp_store
