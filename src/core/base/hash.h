#pragma once

#include <cstdint>
#include <string_view>

namespace nxd {

// FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo), 64 bits: the same value on every machine, for keys and
// for comparisons among ranks, and no defence against inputs that are made to collide.
class Hash {
 public:
  // A byte, or a word where what is hashed is a list of numbers.
  constexpr Hash& add(uint64_t value) {
    value_ = (value_ ^ value) * 0x100000001b3U;
    return *this;
  }
  constexpr Hash& add(std::string_view bytes) {
    for (const char c : bytes) add(uint64_t{static_cast<unsigned char>(c)});
    return *this;
  }
  constexpr uint64_t value() const { return value_; }
  // Fits a double without loss, and a small range.
  constexpr uint32_t folded() const { return static_cast<uint32_t>(value_ ^ (value_ >> 32)); }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace nxd
