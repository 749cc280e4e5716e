#include "core/tensor_parallel/array_overlap.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "core/base/dtype.h"

namespace nxd {
namespace {

// A sum of steps: each step is taken 0 to count times.
struct StridedStep {
  int64_t size, count;
};

// True if a range has a multiple of unit, which is at least 0.
bool has_multiple(int64_t unit, int64_t low, int64_t high) {
  if (low <= 0 && high >= 0) return true;
  if (unit == 0) return false;
  const int64_t nearest = low > 0 ? low : -high;  // of their distances from 0
  return (unit - nearest % unit) % unit <= high - low;
}

// Tells if a sum of steps can come to lie in a range. From the largest step on, no more multiples
// of it are tried than smaller steps can make up for: for nested dimensions these are one or two.
// Where all steps have a common divisor whose multiples the range lies between none is tried, such
// as for every second element and every fourth one of those between them.
class StepSums {
 public:
  explicit StepSums(std::vector<StridedStep> steps)
      : steps_(merged(std::move(steps))), rest_(steps_.size()), unit_(steps_.size() + 1) {
    int64_t rest = 0;
    for (size_t k = steps_.size(); k-- > 0;) {
      rest_[k] = rest;
      rest += steps_[k].size * steps_[k].count;
      unit_[k] = std::gcd(unit_[k + 1], steps_[k].size);
    }
    all_ = rest;
  }

  bool reach(int64_t low, int64_t high) { return high >= 0 && low <= all_ && from(0, low, high); }

 private:
  // Larger ones first; those of one size are one.
  static std::vector<StridedStep> merged(std::vector<StridedStep> steps) {
    std::sort(steps.begin(), steps.end(),
              [](const StridedStep& a, const StridedStep& b) { return a.size > b.size; });
    std::vector<StridedStep> out;
    for (const StridedStep& step : steps) {
      if (!out.empty() && out.back().size == step.size) {
        out.back().count += step.count;
      } else {
        out.push_back(step);
      }
    }
    return out;
  }

  bool from(size_t k, int64_t low, int64_t high) {
    if (--left_ < 0) return true;
    if (!has_multiple(unit_[k], low, high)) return false;
    if (k == steps_.size()) return true;
    const StridedStep& step = steps_[k];
    const int64_t lacking = low - rest_[k];
    const int64_t first = lacking > 0 ? (lacking + step.size - 1) / step.size : 0;
    const int64_t last = high < 0 ? -1 : std::min(step.count, high / step.size);
    for (int64_t n = first; n <= last; ++n) {
      if (from(k + 1, low - n * step.size, high - n * step.size)) return true;
    }
    return false;
  }

  std::vector<StridedStep> steps_;
  std::vector<int64_t> rest_;  // what all later steps come to
  std::vector<int64_t> unit_;  // the greatest common divisor of this and all later steps
  int64_t all_ = 0;
  int64_t left_ = 20000;
};

// Where an array's elements begin, in bytes from its data.
struct ByteReach {
  explicit ByteReach(const Array& array) : element(static_cast<int64_t>(dtype_size(array.dtype))) {
    for (size_t d = 0; d < array.shape.size(); ++d) {
      const int64_t far = (array.shape[d] - 1) * array.strides[d] * element;
      (far < 0 ? first : last) += far;
    }
  }

  int64_t element, first = 0, last = 0;
};

void add_steps(const Array& array, int64_t element, std::vector<StridedStep>& steps) {
  for (size_t d = 0; d < array.shape.size(); ++d) {
    if (array.shape[d] <= 1 || array.strides[d] == 0) continue;
    steps.push_back({std::abs(array.strides[d]) * element, array.shape[d] - 1});
  }
}

}  // namespace

// Two elements lie in one place where the differences of their indices come to 0. That of the
// outermost dimension in which they differ is taken to be at least 1.
bool overlaps_itself(const Array& array) {
  if (array.is_dense()) return false;
  std::vector<StridedStep> steps;
  for (size_t d = 0; d < array.shape.size(); ++d) {
    if (array.shape[d] <= 1) continue;
    if (array.strides[d] == 0) return true;
    steps.push_back({std::abs(array.strides[d]), array.shape[d] - 1});
  }
  for (size_t d = 0; d < steps.size(); ++d) {
    // steps[d] n + the sum of others from -count to count = 0, with n of 1 to count.
    std::vector<StridedStep> sum{{steps[d].size, steps[d].count - 1}};
    int64_t shift = steps[d].size;
    for (size_t other = d + 1; other < steps.size(); ++other) {
      sum.push_back({steps[other].size, 2 * steps[other].count});
      shift -= steps[other].size * steps[other].count;
    }
    if (StepSums(std::move(sum)).reach(-shift, -shift)) return true;
  }
  return false;
}

// An element of b lies at its first one and a sum of steps. a's are taken backwards from its last
// one: so the distance of two elements is one sum, of the steps of both.
bool overlap(const Array& a, const Array& b) {
  if (!a.data || !b.data || a.count() == 0 || b.count() == 0) return false;
  const ByteReach of_a(a), of_b(b);
  const int64_t distance = b.data - a.data;  // of addresses
  // They share a byte where -element of b < distance of elements < element of a.
  const int64_t low = 1 - of_b.element - (distance + of_b.first - of_a.last);
  const int64_t high = of_a.element - 1 - (distance + of_b.first - of_a.last);
  if (high < 0 || low > of_b.last - of_b.first + of_a.last - of_a.first) return false;
  std::vector<StridedStep> steps;
  steps.reserve(a.shape.size() + b.shape.size());
  add_steps(a, of_a.element, steps);
  add_steps(b, of_b.element, steps);
  return StepSums(std::move(steps)).reach(low, high);
}

bool is_same_array(const Array& a, const Array& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.shape != b.shape) return false;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

}  // namespace nxd
