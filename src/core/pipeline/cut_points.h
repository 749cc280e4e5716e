#pragma once

#include <vector>

namespace nxd {

// How a list is cut into parts that follow one another, none of them empty. Results are the sizes
// of the parts. INVALID_ARGUMENT for fewer items than parts. Pure.

// Sizes that differ by one at most, the larger ones last.
std::vector<int> even_parts(int items, int parts);

// The largest sum of the costs in a part is as small as any cut can make it. Within that, parts
// are filled to the mean of what is left, from the last one on: equal costs are cut as by
// even_parts.
std::vector<int> cheapest_parts(const std::vector<double>& costs, int parts);

}  // namespace nxd
