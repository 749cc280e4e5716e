// Words are i32, whose sums and products have the same bits as those of unsigned numbers: devices
// have other dtypes of integers or not. StableHLO's own generator is not used: Neuron's compiler
// takes it with an algorithm of its own alone (its error NCC_EVRF006).
#include "engine/stablehlo/random_words.h"

#include <array>
#include <bit>
#include <utility>

namespace nxd {
namespace {

using Four = std::array<HloValue, 4>;

HloValue word(HloBuilder& hlo, uint32_t value, const HloSizes& sizes) {
  return hlo.constant(int64_t{std::bit_cast<int32_t>(value)}, at::kInt, sizes);
}

HloValue shifted_right(HloBuilder& hlo, const HloValue& x, int64_t bits) {
  return hlo.binary("shift_right_logical", x, hlo.constant(bits, x.dtype, x.sizes));
}

HloValue masked(HloBuilder& hlo, const HloValue& x, int64_t mask) {
  return hlo.binary("and", x, hlo.constant(mask, x.dtype, x.sizes));
}

// The high word of a product of unsigned words, by halves: exact in 32 bits.
HloValue high_by_halves(HloBuilder& hlo, const HloValue& x, uint32_t factor) {
  const HloValue x_low = masked(hlo, x, 0xFFFF), x_high = shifted_right(hlo, x, 16);
  const HloValue low = word(hlo, factor & 0xFFFF, x.sizes), high = word(hlo, factor >> 16, x.sizes);
  const HloValue mixed = hlo.times(x_high, low), other = hlo.times(x_low, high);
  const HloValue middle =
      hlo.plus(shifted_right(hlo, hlo.times(x_low, low), 16),
               hlo.plus(masked(hlo, mixed, 0xFFFF), masked(hlo, other, 0xFFFF)));
  const HloValue carried = hlo.plus(shifted_right(hlo, mixed, 16), shifted_right(hlo, other, 16));
  return hlo.plus(hlo.plus(hlo.times(x_high, high), carried), shifted_right(hlo, middle, 16));
}

// The low and the high word of a product of unsigned words. Neuron's i64 may be i32.
std::pair<HloValue, HloValue> product(HloBuilder& hlo, const HloValue& x, uint32_t factor) {
  if (hlo.target().is_neuron()) {
    return {hlo.times(x, word(hlo, factor, x.sizes)), high_by_halves(hlo, x, factor)};
  }
  const HloValue wide = masked(hlo, hlo.convert(x, at::kLong), 0xFFFFFFFF);
  const HloValue all = hlo.times(wide, hlo.constant(int64_t{factor}, at::kLong, x.sizes));
  return {hlo.convert(all, at::kInt), hlo.convert(shifted_right(hlo, all, 32), at::kInt)};
}

// philox4x32_10 of counters of one size each; the key's words have no dimensions.
Four philox(HloBuilder& hlo, Four counter, std::array<HloValue, 2> key) {
  const HloSizes sizes = counter[0].sizes;
  const auto mixed = [&](const HloValue& a, const HloValue& b, const HloValue& part_of_key) {
    return hlo.binary("xor", hlo.binary("xor", a, b), hlo.broadcast(part_of_key, sizes));
  };
  for (int round = 0; round < 10; ++round) {
    const auto [a_low, a_high] = product(hlo, counter[0], 0xD2511F53U);
    const auto [b_low, b_high] = product(hlo, counter[2], 0xCD9E8D57U);
    counter = {mixed(b_high, counter[1], key[0]), b_low, mixed(a_high, counter[3], key[1]), a_low};
    key[0] = hlo.plus(key[0], word(hlo, 0x9E3779B9U, {}));
    key[1] = hlo.plus(key[1], word(hlo, 0xBB67AE85U, {}));
  }
  return counter;
}

// The words of some rows: see RandomRows.
class RowsOfWords {
 public:
  RowsOfWords(NodeLowering& n, int argument, WordBits bits)
      : hlo_(n.hlo),
        numbers_(n.tensor(argument)),
        bits_(static_cast<int>(bits)),
        words_(bits == WordBits::k16 ? 8 : 4),
        rows_(n.attribute("rows")),
        cols_(n.attribute("cols")),
        stride_(n.attribute("stride")),
        is_aligned_(n.has_attribute("aligned")) {}

  // So many, behind those that the numbers skip.
  HloValue flat(int64_t count) {
    const bool has_whole_blocks = rows_ == 1 || stride_ % words_ == 0;
    const HloValue words = has_whole_blocks ? of_blocks() : of_elements();
    const HloValue all = hlo_.reshape(words, {rows_ * cols_});
    return count == rows_ * cols_ ? all : hlo_.window(all, 0, number(6), count);
  }

 private:
  HloValue number(int64_t index) {
    return hlo_.reshape(hlo_.slice(numbers_, 0, index, index + 1), {});
  }

  // The blocks of these numbers, which have 32 bits: RandomRows::kMostElements.
  Four drawn(const HloValue& blocks) {
    return philox(hlo_,
                  {blocks, word(hlo_, 0, blocks.sizes), hlo_.broadcast(number(2), blocks.sizes),
                   hlo_.broadcast(number(3), blocks.sizes)},
                  {number(0), number(1)});
  }

  // The place of a row, or of a column, times a factor.
  HloValue steps(int64_t dim, int64_t factor, const HloSizes& sizes) {
    const HloValue place = hlo_.iota(at::kInt, sizes, dim);
    return factor == 1 ? place : hlo_.times(place, hlo_.constant(factor, at::kInt, sizes));
  }

  // Every row begins at one word of a block: each block is drawn once.
  HloValue of_blocks() {
    const int64_t room = is_aligned_ ? 0 : words_ - 1;
    const int64_t blocks = (cols_ + room + words_ - 1) / words_;
    const HloSizes sizes{rows_, blocks};
    HloValue numbers = hlo_.plus(hlo_.broadcast(number(4), sizes), steps(1, 1, sizes));
    if (rows_ > 1) numbers = hlo_.plus(numbers, steps(0, stride_ / words_, sizes));
    std::vector<HloValue> parts;
    for (const HloValue& each : drawn(numbers)) {
      const HloValue part = hlo_.reshape(each, {rows_, blocks, 1});
      if (bits_ == 32) {
        parts.push_back(part);
      } else {
        parts.insert(parts.end(), {masked(hlo_, part, 0xFFFF), shifted_right(hlo_, part, 16)});
      }
    }
    const HloValue words = hlo_.reshape(hlo_.concatenate(parts, 2), {rows_, blocks * words_});
    return is_aligned_ ? hlo_.slice(words, 1, 0, cols_) : hlo_.window(words, 1, number(5), cols_);
  }

  // Rows begin anywhere in a block: an element draws a block of its own.
  HloValue of_elements() {
    const HloSizes sizes{rows_, cols_};
    const HloValue place =
        hlo_.plus(hlo_.broadcast(number(5), sizes),
                  hlo_.plus(steps(0, stride_ % words_, sizes), steps(1, 1, sizes)));
    const HloValue numbers =
        hlo_.plus(hlo_.plus(hlo_.broadcast(number(4), sizes), steps(0, stride_ / words_, sizes)),
                  shifted_right(hlo_, place, bits_ == 32 ? 2 : 3));
    const Four words = drawn(numbers);
    const auto has_bit = [&](int64_t bit) {
      return hlo_.compare("NE", masked(hlo_, place, bit), hlo_.filled_like(place, 0));
    };
    const int64_t low = bits_ == 32 ? 1 : 2;
    const HloValue is_odd = has_bit(low);
    const HloValue word = hlo_.select(has_bit(2 * low), hlo_.select(is_odd, words[3], words[2]),
                                      hlo_.select(is_odd, words[1], words[0]));
    if (bits_ == 32) return word;
    return hlo_.select(has_bit(1), shifted_right(hlo_, word, 16), masked(hlo_, word, 0xFFFF));
  }

  HloBuilder& hlo_;
  const HloValue numbers_;
  const int64_t bits_, words_, rows_, cols_, stride_;
  const bool is_aligned_;
};

// 1 for each element that is kept, else 0.
void keep_mask(NodeLowering& n) {
  if (!has_random_words(n)) return n.leave_to_host();
  HloBuilder& hlo = n.hlo;
  const int64_t bound = n.attribute("bound");
  if (bound > 0xFFFFFFFF) return n.give(hlo.constant(int64_t{1}, n.dtype(), n.sizes()));
  const HloValue words = hlo.reshape(random_words(n, 0, WordBits::k32), n.sizes());
  // Unsigned numbers are in the order of these signed ones.
  const HloValue flipped = hlo.binary("xor", words, word(hlo, 0x80000000U, words.sizes));
  const HloValue below = word(hlo, static_cast<uint32_t>(bound) ^ 0x80000000U, words.sizes);
  n.give(hlo.compare("LT", flipped, below));
}

}  // namespace

HloValue random_words(NodeLowering& n, int argument, WordBits bits) {
  int64_t count = 1;
  for (const int64_t size : n.sizes()) count *= size;
  return RowsOfWords(n, argument, bits).flat(count);
}

HloValue rounded_by(HloBuilder& hlo, const HloValue& x, const HloValue& words) {
  const HloValue sum = hlo.plus(hlo.bits_as(x, at::kInt), words);
  const HloValue cut = hlo.binary("and", sum, word(hlo, 0xFFFF0000U, x.sizes));
  const HloValue is_number = hlo.compare("EQ", x, x);
  const HloValue bits = hlo.select(is_number, cut, word(hlo, 0x7FC00000U, x.sizes));
  return hlo.convert(hlo.bits_as(bits, at::kFloat), at::kBFloat16);
}

const Lowerings& random_lowerings() {
  static const Lowerings all = {{"nxd::keep_mask", keep_mask}};
  return all;
}

}  // namespace nxd
