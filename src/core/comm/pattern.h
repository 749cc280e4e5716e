#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/round_up.h"

namespace nxd {

// The pairs of ranks that talk in a collective, and the part of the data that each sends: pure
// functions of places in a group, for any transport.

// Part of an array, in elements.
struct Share {
  size_t begin = 0, count = 0;
};
// The index-th of so many consecutive parts. All but the last that have elements are alike, and
// whole multiples of the unit: 64 elements are whole cache lines of every dtype.
inline Share share_of(size_t count, size_t parts, size_t index, size_t unit = 64) {
  const size_t part = round_up((count + parts - 1) / parts, unit);
  const size_t begin = std::min(index * part, count);
  return {begin, std::min(part, count - begin)};
}

// Dissemination in ceil(log2 n) rounds (Hensgen, Finkel and Manber, Two algorithms for barrier
// synchronization, 1988). In each round a rank sends its blocks to one rank and receives from
// another, at twice the distance of the round before. Ranks 0, 1, 2: rank 0 receives from 1 and
// sends to 2, then receives from 2, which has the block of 0 too, and sends to 1.
struct Exchanged {
  int to, from;
  size_t blocks;  // of ranks, its own and the next ones', that are sent on
};
std::vector<Exchanged> dissemination(int rank, int size);

// A binomial tree from the root: counted from it, a rank's parent is its number without the lowest
// bit. Ranks 0, 1, 2 with root 0: 0 sends to 2 and to 1. The child of the deepest subtree is first.
struct TreePlace {
  int parent;  // -1: the root
  std::vector<int> children;
};
TreePlace binomial_tree(int rank, int size, int root);

}  // namespace nxd
