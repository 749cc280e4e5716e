#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/comm/store/tcp_store_protocol.h"

namespace nxd::tcp_store {

// Finds the end of a request as its bytes arrive. Each call goes on where the last one stopped, so
// that a request in many pieces costs no more than one in a single piece. It allocates nothing.
class RequestScanner {
 public:
  enum class State { kIncomplete, kWhole, kRejected };

  // All bytes that have arrived of this request, and perhaps of later ones.
  State advance(std::string_view bytes);
  // Size of a whole request.
  size_t size() const { return at_; }

 private:
  size_t at_ = 0;  // everything before this was looked at; may lie beyond what has arrived
  bool has_count_ = false;
  uint64_t fields_left_ = 0;
  uint64_t fields_ = 0;  // of each item, the first of which is its key
  size_t tail_ = 0;
};

// Takes a whole request apart, in the order of its fields.
class RequestReader {
 public:
  explicit RequestReader(std::string_view request) : rest_(request) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view bytes() { return take(number<uint64_t>()); }
  std::vector<std::string_view> list() {
    std::vector<std::string_view> values(number<uint64_t>());
    for (std::string_view& value : values) value = bytes();
    return values;
  }

 private:
  std::string_view take(size_t size) {
    const std::string_view front = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return front;
  }
  std::string_view rest_;
};

}  // namespace nxd::tcp_store
