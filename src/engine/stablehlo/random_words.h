#pragma once

#include "engine/stablehlo/lowering.h"

namespace nxd {

// Random words that a node's elements draw by their numbers, as kernels do: RandomSite has the
// bits, and RandomRows of core/layout the attributes and the argument by which a node gets them.
enum class WordBits { k16 = 16, k32 = 32 };

inline bool has_random_words(const NodeLowering& n) { return n.has_attribute("cols "); }
// A word for each element of the first result, flat: i32, whose upper bits are 0 with k16.
HloValue random_words(NodeLowering& n, int argument, WordBits bits);

// f32 to bf16 as kernels::round_stochastic, by words of 16 bits.
HloValue rounded_by(HloBuilder& hlo, const HloValue& x, const HloValue& words);

}  // namespace nxd
