#pragma once

#include <vector>

namespace nxd {

// Split points of a list of items into stages that follow one another: the index of the last item
// of every stage but the last, one less than there are stages. Every stage has an item at least.
// INVALID_ARGUMENT for fewer than one stage, or more stages than items.

// As many items everywhere; of a remainder the last stages have one more each.
std::vector<int> even_split_points(int items, int stages);

// The split points whose most expensive stage is cheapest; among them those whose sum of squares is
// least, and then the earliest. costs: of each item, finite and not negative.
std::vector<int> balanced_split_points(const std::vector<double>& costs, int stages);

}  // namespace nxd
