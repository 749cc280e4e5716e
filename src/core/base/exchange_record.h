#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace nxd {

// Numbers and strings as ranks of one job exchange them: bytes one after the other, in the
// machine's order, read back in the order of writing.
class RecordWriter {
 public:
  void number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void string(std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    bytes_.append(value);
  }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : left_(bytes) {}

  bool done() const { return left_.empty(); }
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  // The number of entries that follow, of at least a number each.
  size_t count() {
    const auto value = static_cast<uint64_t>(number());
    check_internal(value <= left_.size() / sizeof(int64_t), "a peer's record ends early");
    return static_cast<size_t>(value);
  }
  std::string string() {
    const auto size = static_cast<uint64_t>(number());
    check_internal(size <= left_.size(), "a peer's record ends early");
    return std::string(next(static_cast<size_t>(size)));
  }

 private:
  std::string_view next(size_t size) {
    check_internal(size <= left_.size(), "a peer's record ends early");
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }

  std::string_view left_;
};

}  // namespace nxd
