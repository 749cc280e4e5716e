#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace nxd {

// XXH3 of 128 bits, of all bytes that were added, in whatever pieces: for content that must not be
// taken for other content, where 64 bits are too few over years of runs. No defence against inputs
// that are made to collide.
class Hash128 {
 public:
  using Value = std::array<uint64_t, 2>;  // the upper half first, as programs print it

  Hash128& add(uint64_t word) {
    if (kRoom - used_ < sizeof word) pass_on();
    std::memcpy(&bytes_[used_], &word, sizeof word);
    used_ += sizeof word;
    return *this;
  }
  Hash128& add(std::string_view bytes);
  Value value() const;

 private:
  // A short input, such as a call of an operator, is hashed in one piece. This takes no memory, and
  // half the time of a state.
  static constexpr size_t kRoom = 512;
  struct State;
  struct Delete {
    void operator()(State* state) const;
  };

  // Hands the bytes that are kept to the state, which is made where there is none.
  void pass_on();

  size_t used_ = 0;
  std::array<char, kRoom> bytes_;           // the last ones; those beyond used_ are never read
  std::unique_ptr<State, Delete> state_{};  // of those before
};

}  // namespace nxd
