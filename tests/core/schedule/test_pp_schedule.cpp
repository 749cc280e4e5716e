// Pipeline schedules: compute orders against those recorded from NxD Core, durations against the
// formulas of the papers.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/schedule/schedule.h"
#include "core/schedule/schedule_builders.h"
#include "core/schedule/schedule_report.h"
#include "support/paths.h"

#include "support/check.h"

using nlohmann::json;
using nxd::PipelineCosts;
using nxd::PipelineShape;
using nxd::PipelineTask;
using nxd::Schedule;
using nxd::ScheduleReport;

namespace {

constexpr nxd_pp_task_kind_t kF = NXD_PP_TASK_FORWARD, kB = NXD_PP_TASK_BACKWARD;

// Such as "F0.1 B0.1": kind, microbatch, chunk.
std::string text_of(const std::vector<PipelineTask>& tasks) {
  std::string out;
  for (const PipelineTask& task : tasks) {
    out += "FBIW"[task.kind] + std::to_string(task.microbatch) + "." + std::to_string(task.chunk) +
           " ";
  }
  return out;
}

std::string rank_text(nxd_pp_schedule_kind_t kind, const PipelineShape& shape, int rank) {
  return text_of(Schedule::make(kind, shape).tasks(rank));
}

// The tasks that the C functions give.
std::vector<PipelineTask> tasks_by_c(nxd_pp_schedule_kind_t kind, const PipelineShape& shape,
                                     int rank) {
  nxd_pp_schedule_t* schedule = nullptr;
  assert_int_equal(
      nxd_pp_schedule_create(kind, shape.ranks, shape.chunks, shape.microbatches, &schedule),
      NXD_OK);
  size_t count = 0;
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, rank, nullptr, 0, &count), NXD_OK);
  std::vector<nxd_pp_task_t> tasks(count);
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, rank, tasks.data(), count, &count), NXD_OK);
  nxd_pp_schedule_destroy(schedule);
  std::vector<PipelineTask> out;
  for (const auto& task : tasks) out.push_back({task.kind, task.microbatch, task.chunk});
  return out;
}

// NxD's tasks also communicate; compared is the order of what they compute. Its TrainSchedule is an
// older form of 1F1B in lock step: it has empty steps, and the same order.
void test_oracle(void**) {
  const json oracle = json::parse(std::ifstream(nxd_test::oracles() + "/nxd/schedules.json"));
  int interleaved = 0, plain = 0, inference = 0;
  for (const json& entry : oracle["schedules"]) {
    const std::string name = entry["cls"];
    const PipelineShape shape{entry["stages"], entry.value("chunks", 1), entry["mb"]};
    nxd_pp_schedule_kind_t kind = NXD_PP_SCHEDULE_INVALID;
    if (name == "InferenceSchedule") {
      kind = NXD_PP_SCHEDULE_INFERENCE;
      ++inference;
    } else if (name == "TrainInterleavedSchedule") {
      kind = NXD_PP_SCHEDULE_INTERLEAVED;
      ++interleaved;
    } else {
      assert_true(name == "Train1F1BSchedule" || name == "TrainSchedule");
      kind = NXD_PP_SCHEDULE_1F1B;
      ++plain;
    }
    std::vector<PipelineTask> expected;
    for (const json& step : entry["steps"]) {
      for (const json& task : step) {
        if (task[0] == "F" || task[0] == "B") {
          expected.push_back({task[0] == "F" ? kF : kB, task[1], task[2]});
        }
      }
    }
    const int rank = entry["stage"];
    assert_string_equal(text_of(tasks_by_c(kind, shape, rank)).c_str(), text_of(expected).c_str());
    if (kind != NXD_PP_SCHEDULE_INFERENCE) {  // the default is NxD's choice
      assert_true(tasks_by_c(NXD_PP_SCHEDULE_DEFAULT, shape, rank) == expected);
    }
  }
  assert_int_equal(inference, 60);
  assert_int_equal(plain, 120);
  assert_int_equal(interleaved, 180);
}

void test_golden_lists(void**) {
  const auto check = [](nxd_pp_schedule_kind_t kind, const PipelineShape& shape, int rank,
                        const char* expected) {
    assert_string_equal(rank_text(kind, shape, rank).c_str(), expected);
  };
  check(NXD_PP_SCHEDULE_1F1B, {4, 1, 6}, 0,
        "F0.0 F1.0 F2.0 F3.0 B0.0 F4.0 B1.0 F5.0 B2.0 B3.0 B4.0 B5.0 ");
  check(NXD_PP_SCHEDULE_1F1B, {4, 1, 6}, 2,
        "F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 F4.0 B3.0 F5.0 B4.0 B5.0 ");
  check(NXD_PP_SCHEDULE_1F1B, {4, 1, 2}, 0, "F0.0 F1.0 B0.0 B1.0 ");
  check(NXD_PP_SCHEDULE_1F1B, {1, 1, 3}, 0, "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 ");
  check(NXD_PP_SCHEDULE_INTERLEAVED, {2, 2, 4}, 0,
        "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0 ");
  check(NXD_PP_SCHEDULE_INTERLEAVED, {2, 2, 4}, 1,
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0 ");
  check(NXD_PP_SCHEDULE_INTERLEAVED, {2, 2, 2}, 1, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0 ");
  check(NXD_PP_SCHEDULE_GPIPE, {2, 2, 3}, 0,
        "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1 B0.1 B1.1 B0.0 B1.0 B2.1 B2.0 ");
  check(NXD_PP_SCHEDULE_ZERO_BUBBLE, {3, 1, 4}, 0,
        "F0.0 F1.0 F2.0 I0.0 W0.0 F3.0 I1.0 W1.0 I2.0 W2.0 I3.0 W3.0 ");
  check(NXD_PP_SCHEDULE_ZERO_BUBBLE, {3, 1, 4}, 2,
        "F0.0 I0.0 F1.0 I1.0 F2.0 I2.0 W0.0 F3.0 I3.0 W1.0 W2.0 W3.0 ");
  check(NXD_PP_SCHEDULE_ZERO_BUBBLE, {3, 1, 1}, 2, "F0.0 I0.0 W0.0 ");
  check(NXD_PP_SCHEDULE_INFERENCE, {2, 2, 3}, 1, "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1 ");
}

void assert_equals(double got, double expected) {
  if (got != expected) fail_msg("expected %.17g, got %.17g", expected, got);
}

PipelineCosts uniform(const PipelineShape& shape, double forward, double input, double weight) {
  const auto stages = static_cast<size_t>(shape.stages());
  return {std::vector<double>(stages, forward), std::vector<double>(stages, input),
          std::vector<double>(stages, weight), 0};
}

ScheduleReport play(nxd_pp_schedule_kind_t kind, const PipelineShape& shape, double forward,
                    double input, double weight) {
  return report_schedule(Schedule::make(kind, shape), uniform(shape, forward, input, weight));
}

// Durations are whole numbers, so that sums are exact.
void test_formulas(void**) {
  int checked = 0;
  const int costs[][3] = {{1, 1, 1}, {3, 5, 2}, {4, 4, 4}, {7, 6, 1}, {5, 9, 5}, {2, 3, 0}};
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 20; ++m) {
      for (const auto& [f, b, w] : costs) {
        const auto is = [&](double makespan, nxd_pp_schedule_kind_t kind, int chunks) {
          const ScheduleReport report = play(kind, {p, chunks, m}, f, b, w);
          assert_equals(report.makespan, makespan);
          const int work = kind == NXD_PP_SCHEDULE_INFERENCE ? f : f + b + w;
          assert_true(std::abs(report.bubble_share - (1 - m * chunks * work / makespan)) < 1e-12);
          ++checked;
        };
        is((m + p - 1) * (f + b + w), NXD_PP_SCHEDULE_1F1B, 1);
        is((m + p - 1) * (f + b + w), NXD_PP_SCHEDULE_GPIPE, 1);
        is((m + p - 1) * f, NXD_PP_SCHEDULE_INFERENCE, 1);
        if (m >= p) {
          is(m * (f + b + w) + (p - 1) * (f + b - w), NXD_PP_SCHEDULE_ZERO_BUBBLE, 1);
        } else {
          is((m + p - 1) * (f + b) + w, NXD_PP_SCHEDULE_ZERO_BUBBLE, 1);
        }
        for (int v = 2; v <= 3 && m % p == 0; ++v) {
          is((m * v + p - 1) * (f + b + w), NXD_PP_SCHEDULE_INTERLEAVED, v);
          is((m * v + p - 1) * (f + b + w), NXD_PP_SCHEDULE_GPIPE, v);
          is((m * v + p - 1) * f, NXD_PP_SCHEDULE_INFERENCE, v);
        }
      }
    }
  }
  assert_true(checked > 4000);
}

// Two ranks, two microbatches, stages of different cost: worked out by hand.
//   rank 0: F0 0-1, F1 1-2, B0 8-10, B1 14-16
//   rank 1: F0 1.5-3.5, B0 3.5-7.5, F1 7.5-9.5, B1 9.5-13.5
void test_report_by_hand(void**) {
  nxd_pp_schedule_t* schedule = nullptr;
  assert_int_equal(nxd_pp_schedule_create(NXD_PP_SCHEDULE_1F1B, 2, 1, 2, &schedule), NXD_OK);
  const double durations[] = {1, 2};
  nxd_pp_costs_t costs = NXD_PP_COSTS_INIT;
  costs.forward = durations;
  costs.transfer = 0.5;
  nxd_pp_report_t report;
  report.struct_size = sizeof report;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report), NXD_OK);
  assert_int_equal(report.struct_size, sizeof report);
  assert_equals(report.makespan, 16);
  assert_equals(report.critical_path, 1 + 0.5 + 2 + 4 + 0.5 + 2);
  assert_equals(report.bubble_share, (32.0 - 18) / 32);
  assert_int_equal(report.peak_activations, 2);
  assert_int_equal(report.fullest_rank, 0);

  // NULL costs: all 1, and a backward takes both its parts.
  assert_int_equal(nxd_pp_schedule_get_report(schedule, nullptr, &report), NXD_OK);
  assert_equals(report.makespan, 9);
  assert_equals(report.critical_path, 6);
  const double zeros[] = {0, 0};
  costs = NXD_PP_COSTS_INIT;
  costs.forward = costs.backward_input = costs.backward_weight = zeros;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report), NXD_OK);
  assert_equals(report.makespan, 0);
  assert_equals(report.bubble_share, 0);
  nxd_pp_schedule_destroy(schedule);
}

// A weight gradient is on no way but its own, and two stages of one rank transfer nothing.
void test_critical_path(void**) {
  const ScheduleReport split = play(NXD_PP_SCHEDULE_ZERO_BUBBLE, {3, 1, 5}, 2, 3, 1);
  assert_equals(split.critical_path, 3 * 2 + 3 * 3 + 1);
  const ScheduleReport whole = play(NXD_PP_SCHEDULE_1F1B, {3, 1, 5}, 2, 3, 1);
  assert_equals(whole.critical_path, 3 * 2 + 3 * (3 + 1));
  // The way that ends with a weight gradient of the last rank, which is not the last to be made.
  PipelineCosts late = uniform({2, 1, 1}, 2, 3, 1);
  late.backward_weight[1] = 100;
  const auto dear = report_schedule(Schedule::make(NXD_PP_SCHEDULE_ZERO_BUBBLE, {2, 1, 1}), late);
  assert_equals(dear.critical_path, 2 * 2 + 3 + 100);
  const PipelineShape alone{1, 3, 2};
  PipelineCosts costs = uniform(alone, 2, 3, 1);
  costs.transfer = 100;
  const auto one = report_schedule(Schedule::make(NXD_PP_SCHEDULE_GPIPE, alone), costs);
  assert_equals(one.critical_path, 3 * 6);
  assert_equals(one.makespan, 36);
  assert_equals(one.bubble_share, 0);
}

void assert_says(const std::string& message, const std::string& part) {
  if (message.find(part) == std::string::npos) {
    fail_msg("expected \"...%s...\", got \"%s\"", part.c_str(), message.c_str());
  }
}

void test_shapes_refused(void**) {
  const auto says = [](nxd_pp_schedule_kind_t kind, int ranks, int chunks, int microbatches,
                       const char* part) {
    auto* schedule = reinterpret_cast<nxd_pp_schedule_t*>(8);
    assert_int_equal(nxd_pp_schedule_create(kind, ranks, chunks, microbatches, &schedule),
                     NXD_ERROR_INVALID_ARGUMENT);
    assert_null(schedule);
    assert_says(nxd_last_error(), part);
  };
  says(NXD_PP_SCHEDULE_INTERLEAVED, 4, 2, 5,
       "interleaved: num_microbatches must divide by the 4 ranks, got 5");
  says(NXD_PP_SCHEDULE_DEFAULT, 4, 2, 6, "must divide by the 4 ranks, got 6");
  says(NXD_PP_SCHEDULE_INTERLEAVED, 4, 1, 4, "interleaved: expected at least 2 chunks");
  says(NXD_PP_SCHEDULE_1F1B, 4, 2, 4, "1F1B: expected 1 chunk on each rank, got 2");
  says(NXD_PP_SCHEDULE_ZERO_BUBBLE, 4, 2, 4, "ZB-H1: expected 1 chunk on each rank, got 2");
  says(NXD_PP_SCHEDULE_1F1B, 0, 1, 4, "ranks: expected at least 1, got 0");
  says(NXD_PP_SCHEDULE_GPIPE, 1, -1, 4, "chunks: expected at least 1, got -1");
  says(NXD_PP_SCHEDULE_INFERENCE, 1, 1, 0, "num_microbatches: expected at least 1, got 0");
  says(NXD_PP_SCHEDULE_INVALID, 1, 1, 1, "kind: expected an NXD_PP_SCHEDULE_*, got -1");
  says(6, 1, 1, 1, "kind: expected an NXD_PP_SCHEDULE_*, got 6");
  says(NXD_PP_SCHEDULE_GPIPE, INT32_MAX, INT32_MAX, INT32_MAX, "forward passes in all");
  nxd::check_shape({2, 1, 1 << 21});
  says(NXD_PP_SCHEDULE_GPIPE, 1, 1, (1 << 22) + 1, "at most 4194304 forward passes in all");
}

void test_names(void**) {
  const std::pair<nxd_pp_schedule_kind_t, const char*> names[] = {
      {NXD_PP_SCHEDULE_DEFAULT, "1F1B"},
      {NXD_PP_SCHEDULE_1F1B, "1F1B"},
      {NXD_PP_SCHEDULE_GPIPE, "GPipe"},
      {NXD_PP_SCHEDULE_ZERO_BUBBLE, "ZB-H1"},
      {NXD_PP_SCHEDULE_INFERENCE, "inference"}};
  for (const auto& [kind, expected] : names) {
    nxd_pp_schedule_t* schedule = nullptr;
    assert_int_equal(nxd_pp_schedule_create(kind, 2, 1, 3, &schedule), NXD_OK);
    const char* name = nullptr;
    assert_int_equal(nxd_pp_schedule_get_name(schedule, &name), NXD_OK);
    assert_string_equal(name, expected);
    nxd_pp_schedule_destroy(schedule);
  }
  assert_string_equal(Schedule::make(NXD_PP_SCHEDULE_DEFAULT, {2, 2, 4}).name().c_str(),
                      "interleaved 1F1B");
  assert_string_equal(Schedule::of_tasks({1, 1, 1}, {{{kF, 0, 0}}}).name().c_str(), "custom");
}

// Sizes no test machine has: a rank's own list, and a whole schedule.
void test_many_ranks(void**) {
  const PipelineShape shape{65536, 1, 8};
  for (const auto kind : {NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_ZERO_BUBBLE}) {
    const ScheduleReport report = play(kind, shape, 3, 4, 2);
    assert_equals(report.makespan, kind == NXD_PP_SCHEDULE_1F1B ? 65543.0 * 9 : 65543.0 * 7 + 2);
  }
  const PipelineShape deep{65536, 4, 1 << 28};
  const auto all = most_activations(NXD_PP_SCHEDULE_INTERLEAVED, deep, 0);
  assert_int_equal(all, 65535 * 2 + 3 * 65536 + 1);
}

void test_bad_calls(void**) {
  nxd_pp_schedule_t* schedule = nullptr;
  assert_int_equal(nxd_pp_schedule_create(NXD_PP_SCHEDULE_1F1B, 2, 1, 2, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_create(NXD_PP_SCHEDULE_1F1B, 2, 1, 2, &schedule), NXD_OK);
  nxd_pp_schedule_t* none = nullptr;
  const size_t counts[] = {1, 0};
  assert_int_equal(nxd_pp_schedule_create_tasks(2, 1, 1, nullptr, counts, &none),
                   NXD_ERROR_INVALID_ARGUMENT);
  const nxd_pp_task_t task = {kF, 0, 0};
  assert_int_equal(nxd_pp_schedule_create_tasks(2, 1, 1, &task, nullptr, &none),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_create_tasks(0, 1, 1, &task, counts, &none),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_create_tasks(2, 1, 1, &task, counts, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_null(none);

  nxd_pp_task_t tasks[4];
  size_t count = 7;
  assert_int_equal(nxd_pp_schedule_get_tasks(nullptr, 0, tasks, 4, &count),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(count, 0);
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, 2, tasks, 4, &count),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, -1, tasks, 4, &count),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, 0, tasks, 3, &count),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(count, 4);
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, 0, nullptr, 4, &count),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_get_tasks(schedule, 0, tasks, 4, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);

  const char* name = "";
  assert_int_equal(nxd_pp_schedule_get_name(nullptr, &name), NXD_ERROR_INVALID_ARGUMENT);
  assert_null(name);
  assert_int_equal(nxd_pp_schedule_get_name(schedule, nullptr), NXD_ERROR_INVALID_ARGUMENT);

  nxd_pp_report_t report;
  report.struct_size = sizeof report - 1;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, nullptr, &report), NXD_ERROR_ABI_MISMATCH);
  report.struct_size = sizeof report;
  assert_int_equal(nxd_pp_schedule_get_report(nullptr, nullptr, &report),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_pp_schedule_get_report(schedule, nullptr, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);
  const double bad[] = {1, -1}, endless[] = {1, INFINITY};
  nxd_pp_costs_t costs = NXD_PP_COSTS_INIT;
  costs.backward_weight = bad;
  report.makespan = 5;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_equals(report.makespan, 0);
  assert_says(nxd_last_error(), "costs->backward_weight[1]: expected a duration of at least 0");
  costs = NXD_PP_COSTS_INIT;
  costs.forward = endless;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report),
                   NXD_ERROR_INVALID_ARGUMENT);
  for (const double transfer : {-1.0, double{INFINITY}}) {
    costs = NXD_PP_COSTS_INIT;
    costs.transfer = transfer;
    assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report),
                     NXD_ERROR_INVALID_ARGUMENT);
  }
  nxd_pp_schedule_destroy(schedule);
  nxd_pp_schedule_destroy(nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_oracle),         cmocka_unit_test(test_golden_lists),
      cmocka_unit_test(test_formulas),       cmocka_unit_test(test_report_by_hand),
      cmocka_unit_test(test_critical_path),

      cmocka_unit_test(test_shapes_refused), cmocka_unit_test(test_names),
      cmocka_unit_test(test_many_ranks),     cmocka_unit_test(test_bad_calls)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
