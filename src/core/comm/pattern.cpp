#include "core/comm/pattern.h"

#include <cstdint>

namespace nxd {

std::vector<Exchanged> dissemination(int rank, int size) {
  std::vector<Exchanged> rounds;
  for (int64_t distance = 1; distance < size; distance *= 2) {
    rounds.push_back({static_cast<int>((rank + size - distance) % size),
                      static_cast<int>((rank + distance) % size),
                      static_cast<size_t>(std::min(distance, size - distance))});
  }
  return rounds;
}

TreePlace binomial_tree(int rank, int size, int root) {
  const int place = (rank - root + size) % size;
  TreePlace tree{place == 0 ? -1 : ((place & (place - 1)) + root) % size, {}};
  for (int64_t bit = 1; bit < size && (place & bit) == 0; bit *= 2) {
    if (place + bit < size) tree.children.push_back(static_cast<int>((place + bit + root) % size));
  }
  std::reverse(tree.children.begin(), tree.children.end());
  return tree;
}

}  // namespace nxd
