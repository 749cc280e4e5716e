#include "core/planner/split_points.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/base/error.h"

namespace nxd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

void check_stages(size_t items, int stages) {
  check_argument(stages >= 1 && static_cast<size_t>(stages) <= items, "stages: expected 1 to ",
                 items, ", as many as there are layers to divide, got ", stages);
}

// The least value over the ways to divide the items from each place on into each number of stages.
// combine puts a stage's own value and that of the stages after it together.
class Division {
 public:
  template <class Value, class Combine>
  Division(size_t items, size_t stages, Value value, Combine combine)
      : stages_(stages), best_((items + 1) * (stages + 1), kNever) {
    at(items, 0) = 0;
    for (size_t n = 1; n <= stages; ++n) {
      for (size_t first = 0; first + n <= items; ++first) {
        for (size_t end = first + 1; end + (n - 1) <= items; ++end) {
          const double own = value(first, end);
          if (own == kNever) break;  // a longer stage is no cheaper
          at(first, n) = std::min(at(first, n), combine(own, at(end, n - 1)));
        }
      }
    }
  }

  double best() const { return best_[stages_]; }

  // The earliest cuts that have the least value.
  template <class Value, class Combine>
  std::vector<int> cuts(Value value, Combine combine) {
    std::vector<int> result;
    size_t first = 0;
    for (size_t n = stages_; n > 1; --n) {
      size_t end = first + 1;
      while (combine(value(first, end), at(end, n - 1)) != at(first, n)) ++end;
      result.push_back(static_cast<int>(end) - 1);
      first = end;
    }
    return result;
  }

 private:
  // The least cost of the items from first on, in n stages.
  double& at(size_t first, size_t n) { return best_[first * (stages_ + 1) + n]; }

  size_t stages_;
  std::vector<double> best_;
};

}  // namespace

std::vector<int> even_split_points(int items, int stages) {
  check_argument(items >= 0, "items: expected at least 0, got ", items);
  check_stages(static_cast<size_t>(items), stages);
  const int each = items / stages, remainder = items % stages;
  std::vector<int> cuts;
  int end = 0;
  for (int stage = 0; stage + 1 < stages; ++stage) {
    end += each + (stage >= stages - remainder ? 1 : 0);
    cuts.push_back(end - 1);
  }
  return cuts;
}

std::vector<int> balanced_split_points(const std::vector<double>& costs, int stages) {
  check_stages(costs.size(), stages);
  std::vector<double> before{0};  // the sum of the items before each
  for (const double cost : costs) {
    check_argument(std::isfinite(cost) && cost >= 0, "costs[", before.size() - 1,
                   "]: expected a finite number of at least 0, got ", cost);
    before.push_back(before.back() + cost);
  }
  const auto cost = [&](size_t first, size_t end) { return before[end] - before[first]; };
  const auto larger = [](double a, double b) { return std::max(a, b); };
  const double most = Division(costs.size(), static_cast<size_t>(stages), cost, larger).best();
  const auto square = [&](size_t first, size_t end) {
    const double own = cost(first, end);
    return own <= most ? own * own : kNever;
  };
  const auto sum = [](double a, double b) { return a + b; };
  return Division(costs.size(), static_cast<size_t>(stages), square, sum).cuts(square, sum);
}

}  // namespace nxd
