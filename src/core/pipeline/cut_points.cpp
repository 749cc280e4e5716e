#include "core/pipeline/cut_points.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/base/error.h"

namespace nxd {
namespace {

void check_counts(size_t items, int parts) {
  check_argument(parts >= 1, "parts: expected at least 1, got ", parts);
  check_argument(items >= static_cast<size_t>(parts), "parts: expected at most one for each of ",
                 items, " items, got ", parts);
}

// fewest[n]: how many parts of at most limit the first n items take at least.
std::vector<int> fewest_parts(const std::vector<double>& costs, double limit) {
  std::vector<int> fewest(costs.size() + 1, 0);
  double sum = 0;
  int parts = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (parts == 0 || sum + costs[i] > limit) {
      ++parts;
      sum = 0;
    }
    sum += costs[i];
    fewest[i + 1] = parts;
  }
  return fewest;
}

// The smallest limit that so many parts keep.
double smallest_limit(const std::vector<double>& costs, int parts) {
  double low = *std::max_element(costs.begin(), costs.end());
  double high = std::accumulate(costs.begin(), costs.end(), 0.0);
  if (fewest_parts(costs, low).back() <= parts) return low;
  // Down to two neighbouring numbers.
  for (;;) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (fewest_parts(costs, middle).back() <= parts ? high : low) = middle;
  }
}

}  // namespace

std::vector<int> even_parts(int items, int parts) {
  check_counts(static_cast<size_t>(std::max(items, 0)), parts);
  std::vector<int> sizes(static_cast<size_t>(parts), items / parts);
  for (int i = 0; i < items % parts; ++i) ++sizes[static_cast<size_t>(parts - 1 - i)];
  return sizes;
}

std::vector<int> cheapest_parts(const std::vector<double>& costs, int parts) {
  check_counts(costs.size(), parts);
  for (size_t i = 0; i < costs.size(); ++i) {
    check_argument(std::isfinite(costs[i]) && costs[i] >= 0, "costs[", i,
                   "]: expected a cost of at least 0, got ", costs[i]);
  }
  const double limit = smallest_limit(costs, parts);
  const std::vector<int> fewest = fewest_parts(costs, limit);
  std::vector<int> sizes(static_cast<size_t>(parts), 0);
  double left = std::accumulate(costs.begin(), costs.end(), 0.0);
  size_t end = costs.size();
  for (int part = parts; part-- > 0;) {
    const auto before = static_cast<size_t>(part);  // each part before this one needs an item
    const double mean = left / (part + 1);
    double sum = 0;
    size_t begin = end;
    // As long as what is before does not fit into the parts before it, it has to come along.
    while (begin > before && (begin == end || part == 0 || fewest[begin] > part ||
                              (sum < mean && sum + costs[begin - 1] <= limit))) {
      sum += costs[--begin];
    }
    sizes[before] = static_cast<int>(end - begin);
    left -= sum;
    end = begin;
  }
  return sizes;
}

}  // namespace nxd
