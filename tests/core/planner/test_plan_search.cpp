// The list that a search finds: no layout twice, ties in an order, and the least memory that does.
#include "core/planner/plan_search.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "core/planner/layout_plan.h"
#include "support/planner_predictions.h"

#include "support/check.h"

namespace {

constexpr size_t kAll = 10000;

// With as many ranks as give it a divisor that is its own partner, several schedules and both
// partitions.
std::vector<nxd::FoundPlan> found_of(const nxd_plan_machine_t& given, size_t count = kAll,
                                     int32_t sequence_length = 16) {
  nxd_plan_model_t model = small_model();
  model.num_heads = model.hidden_size = 16;
  nxd::PlanSearchOptions options;
  options.world_size = 16;
  options.sequence_length = sequence_length;
  options.batch_size = 16;
  return nxd::search_plans(nxd::read_plan_model(model), nxd::read_plan_machine(given), options,
                           count);
}

// Each layout is there once. One that is cut by cost is there where it is another than the even
// one.
void no_layout_twice(void**) {
  nxd_plan_model_t model = small_model();
  model.num_heads = model.hidden_size = 16;
  const nxd::ModelSizes sizes = nxd::read_plan_model(model);
  const auto key_of = [&](const nxd_plan_layout_t& l) {
    const int stages = l.pipeline_parallel_size * l.virtual_size;
    return std::tuple(l.tensor_parallel_size, l.pipeline_parallel_size, l.data_parallel_size,
                      l.virtual_size, l.num_microbatches, l.microbatch_size, l.zero_stage,
                      l.sequence_parallel, l.recompute, l.schedule,
                      nxd::stage_layers(sizes, l.partition, stages, l.sequence_length));
  };
  std::vector<decltype(key_of({}))> keys;
  for (const nxd::FoundPlan& plan : found_of(round_machine())) keys.push_back(key_of(plan.layout));
  assert_true(keys.size() > 100);
  std::sort(keys.begin(), keys.end());
  assert_true(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
}

// A sequence need not divide by the ranks that share it.
void uneven_sequences(void**) {
  const auto splits = [](const nxd::FoundPlan& plan) { return plan.layout.sequence_parallel == 1; };
  const auto even = found_of(round_machine()), uneven = found_of(round_machine(), kAll, 15);
  const auto count = std::count_if(even.begin(), even.end(), splits);
  assert_true(count > 10);
  assert_int_equal(std::count_if(uneven.begin(), uneven.end(), splits), count);
}

// The shortest step first, and of those that take as long the one that needs least.
void order(void**) {
  size_t ties = 0;
  const auto found = found_of(round_machine());
  for (size_t i = 1; i < found.size(); ++i) {
    const auto &before = found[i - 1].prediction, &p = found[i].prediction;
    assert_true(before.step_seconds <= p.step_seconds);
    if (before.step_seconds < p.step_seconds) continue;
    ties += before.total_bytes < p.total_bytes;
    assert_true(before.total_bytes <= p.total_bytes);
  }
  assert_true(ties > 0);
  // As many as are asked for are the first of all.
  const auto few = found_of(round_machine(), 3);
  assert_int_equal(few.size(), 3);
  for (size_t i = 0; i < few.size(); ++i) {
    assert_true(few[i].prediction.step_seconds == found[i].prediction.step_seconds);
  }
}

// A machine whose memory is too small is told how much some layout does with, and no less.
void least_memory(void**) {
  nxd_plan_machine_t machine = round_machine();
  const auto needed = [&]() -> uint64_t {
    try {
      found_of(machine);
      return 0;
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
      const char* const at = strstr(error.what(), "expected at least ");
      unsigned long long bytes = 0;
      assert_true(at && std::sscanf(at, "expected at least %llu", &bytes) == 1);
      return bytes;
    }
  };
  machine.memory_bytes = 100;
  const uint64_t least = needed();
  assert_true(least > 100);
  machine.memory_bytes = least - 1;
  assert_int_equal(needed(), least);
  machine.memory_bytes = least + 1;
  assert_int_equal(needed(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(no_layout_twice), cmocka_unit_test(uneven_sequences),
                              cmocka_unit_test(order), cmocka_unit_test(least_memory)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
