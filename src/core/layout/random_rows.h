#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/layout/shard_spec.h"

namespace nxd {

// A dense piece of a rank's shard as rows of the whole tensor, for programs that draw random words
// by global numbers. Ranks differ in numbers, which a program takes as an input; the rest is its
// code, and one for all ranks whose pieces have one size. Pure.
//
// Element (r, c) has the number first + r * stride + c. Padding has numbers too, of any elements.
struct RandomRows {
  // The most elements of a whole tensor: the numbers of Philox blocks of 4 words have 32 bits.
  static constexpr int64_t kMostElements = int64_t{1} << 34;

  int64_t first = 0;
  int64_t rows = 1, cols = 0;
  int64_t stride = 0;   // 0: there is one row
  int64_t skipped = 0;  // elements of the first row before the piece
  int64_t count = 0;    // elements of the piece
  int64_t unit = 1;     // rows of all ranks begin at a multiple of it; 0: at 0

  // None for a shard that is no such rows, or has too many elements.
  static std::optional<RandomRows> of(const ShardSpec& shard);
  // The elements begin ... begin + size - 1 of a shard's rows, which may end before. Parts of one
  // size have one code.
  RandomRows part(int64_t begin, int64_t size) const;

  // The code, such as "rows 2, cols 8, stride 16"; "aligned" where every row begins at the first
  // word of a block of so many, on any rank.
  std::string code(int64_t words) const;
  // The numbers, as 32-bit words: the site's key and draw, the block of so many words in which the
  // first row begins, the words of it before that, and skipped.
  std::vector<int32_t> numbers(const RandomSite& site, int64_t words) const;

  bool operator==(const RandomRows&) const = default;
};

}  // namespace nxd
