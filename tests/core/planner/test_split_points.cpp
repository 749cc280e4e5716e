// Where lists are cut into stages: recorded cuts, and by exhaustion that no others are better.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/planner/split_points.h"
#include "support/paths.h"

#include "support/check.h"

using Cuts = std::vector<int>;

namespace {

template <class Function>
void refused(const Function& function, const char* part) {
  try {
    function();
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.what(), part)) fail_msg("expected \"%s\", got: %s", part, error.what());
    return;
  }
  fail_msg("not refused: expected \"%s\"", part);
}

// Calls visit with every way to cut.
template <class Visit>
void for_each_division(int items, int stages, const Visit& visit, Cuts cuts = {}) {
  if (static_cast<int>(cuts.size()) == stages - 1) return visit(cuts);
  const int first = cuts.empty() ? 0 : cuts.back() + 1;
  for (int cut = first; cut < items - 1; ++cut) {
    cuts.push_back(cut);
    for_each_division(items, stages, visit, cuts);
    cuts.pop_back();
  }
}

std::vector<double> stage_costs(const std::vector<double>& costs, const Cuts& cuts) {
  std::vector<double> result(1, 0);
  for (size_t i = 0; i < costs.size(); ++i) {
    result.back() += costs[i];
    if (std::find(cuts.begin(), cuts.end(), static_cast<int>(i)) != cuts.end()) {
      result.push_back(0);
    }
  }
  return result;
}

void test_recorded_even_cuts(void**) {
  std::ifstream file(nxd_test::oracles() + "/nxd/auto_partition.json");
  const auto cases = nlohmann::json::parse(file);
  assert_int_equal(cases.size(), 65);
  for (const auto& entry : cases) {
    const int layers = entry["layers"], stages = entry["pp"];
    if (entry.contains("error")) {
      refused([&] { nxd::even_split_points(layers, stages); }, "stages: expected 1 to ");
      continue;
    }
    std::vector<std::string> names;
    for (const int cut : nxd::even_split_points(layers, stages)) {
      names.push_back("model.layers." + std::to_string(cut));
    }
    assert_true(names == entry["cuts"].get<std::vector<std::string>>());
  }
  assert_true(nxd::even_split_points(19, 4) == (Cuts{3, 8, 13}));
  assert_true(nxd::even_split_points(10, 4) == (Cuts{1, 3, 6}));
  assert_true(nxd::even_split_points(40, 4) == (Cuts{9, 19, 29}));
  assert_true(nxd::even_split_points(9, 8) == (Cuts{0, 1, 2, 3, 4, 5, 6}));
}

void test_equal_costs_are_cut_evenly(void**) {
  for (int items = 1; items <= 40; ++items) {
    for (int stages = 1; stages <= items; ++stages) {
      assert_true(nxd::balanced_split_points(std::vector<double>(static_cast<size_t>(items), 2.5),
                                             stages) == nxd::even_split_points(items, stages));
    }
  }
}

// Whole numbers, so that ties are ties.
void test_no_division_is_better(void**) {
  std::mt19937 random(5);
  for (int run = 0; run < 300; ++run) {
    const int items = 1 + static_cast<int>(random() % 9);
    const int stages = 1 + static_cast<int>(random() % static_cast<unsigned>(items));
    std::vector<double> costs;
    for (int i = 0; i < items; ++i) costs.push_back(static_cast<double>(random() % 7));
    using Value = std::pair<double, double>;  // most expensive stage, sum of squares
    const auto value = [&](const Cuts& cuts) {
      const std::vector<double> each = stage_costs(costs, cuts);
      double squares = 0;
      for (const double cost : each) squares += cost * cost;
      return Value(*std::max_element(each.begin(), each.end()), squares);
    };
    std::vector<std::pair<Value, Cuts>> all;
    for_each_division(items, stages,
                      [&](const Cuts& cuts) { all.emplace_back(value(cuts), cuts); });
    assert_true(nxd::balanced_split_points(costs, stages) ==
                std::min_element(all.begin(), all.end())->second);
  }
}

void test_bad_arguments(void**) {
  for (const int stages : {-1, 0, 4}) {
    refused([&] { nxd::even_split_points(3, stages); }, "stages: expected 1 to 3");
    refused([&] { nxd::balanced_split_points({1, 1, 1}, stages); }, "stages: expected 1 to 3");
  }
  refused([&] { nxd::even_split_points(-1, 1); }, "items: ");
  refused([&] { nxd::balanced_split_points({}, 1); }, "stages: ");
  for (const double cost : std::vector<double>{-1, NAN, INFINITY}) {
    refused([&] { nxd::balanced_split_points({1, cost}, 1); }, "costs[1]: ");
  }
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recorded_even_cuts),
      cmocka_unit_test(test_equal_costs_are_cut_evenly),
      cmocka_unit_test(test_no_division_is_better),
      cmocka_unit_test(test_bad_arguments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
