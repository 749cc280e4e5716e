// Pipeline schedules: compute orders against those recorded from NxD Core, durations against the
// formulas of the papers, and the proof against a checker that knows nothing but its definition.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/pipeline/schedule.h"
#include "core/pipeline/schedule_builders.h"
#include "core/pipeline/schedule_report.h"

#include "support/check.h"

using nlohmann::json;
using nxd::PipelineCosts;
using nxd::PipelineShape;
using nxd::PipelineTask;
using nxd::Schedule;
using nxd::ScheduleReport;
using TaskLists = std::vector<std::vector<PipelineTask>>;

namespace {

constexpr nxd_pp_task_kind_t kF = NXD_PP_TASK_FORWARD, kB = NXD_PP_TASK_BACKWARD,
                             kI = NXD_PP_TASK_INPUT_GRADIENT, kW = NXD_PP_TASK_WEIGHT_GRADIENT;
const std::vector<nxd_pp_schedule_kind_t> kKinds = {
    NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_INTERLEAVED, NXD_PP_SCHEDULE_GPIPE,
    NXD_PP_SCHEDULE_ZERO_BUBBLE, NXD_PP_SCHEDULE_INFERENCE};

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

// What the C functions give.
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
  const json oracle = json::parse(std::ifstream(std::string(NXD_ORACLES) + "/nxd/schedules.json"));
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
  const PipelineShape alone{1, 3, 2};
  PipelineCosts costs = uniform(alone, 2, 3, 1);
  costs.transfer = 100;
  const auto one = report_schedule(Schedule::make(NXD_PP_SCHEDULE_GPIPE, alone), costs);
  assert_equals(one.critical_path, 3 * 6);
  assert_equals(one.makespan, 36);
  assert_equals(one.bubble_share, 0);
}

PipelineShape random_shape(std::mt19937_64& random, nxd_pp_schedule_kind_t kind) {
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  PipelineShape shape{draw(1, 12), draw(1, 5), draw(1, 40)};
  if (kind == NXD_PP_SCHEDULE_1F1B || kind == NXD_PP_SCHEDULE_ZERO_BUBBLE) shape.chunks = 1;
  if (kind == NXD_PP_SCHEDULE_INTERLEAVED) {
    shape.chunks = draw(2, 5);
    shape.microbatches = shape.ranks * draw(1, 5);
  }
  return shape;
}

// The definition, taken literally: whatever could be made next is, until nothing can.
class Checker {
 public:
  Checker(const PipelineShape& shape, const TaskLists& lists)
      : shape_(shape), lists_(lists), made_(static_cast<size_t>(shape.stages())) {
    for (auto& stage : made_) stage.kinds.resize(static_cast<size_t>(shape.microbatches));
  }

  bool can_run() {
    std::vector<size_t> next(lists_.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < lists_.size(); ++rank) {
        for (; next[rank] < lists_[rank].size() && make(rank, lists_[rank][next[rank]]);
             ++next[rank]) {
          progress = true;
        }
      }
    }
    for (size_t rank = 0; rank < lists_.size(); ++rank) {
      if (next[rank] < lists_[rank].size()) return false;
    }
    for (const auto& stage : made_) {
      for (const auto& kinds : stage.kinds) {
        const bool back = kinds.count(kB) != 0 || (kinds.count(kI) != 0 && kinds.count(kW) != 0);
        if (kinds.count(kF) == 0 || (trains_ && !back)) return false;
      }
    }
    return true;
  }

 private:
  struct Stage {
    std::vector<std::set<nxd_pp_task_kind_t>> kinds;  // made, of each microbatch
    int inputs = 0, weights = 0;                      // gradients formed, in order
  };

  bool make(size_t rank, const PipelineTask& task) {
    const auto s = static_cast<size_t>(task.chunk * shape_.ranks) + rank;
    const auto m = static_cast<size_t>(task.microbatch);
    Stage& stage = made_[s];
    trains_ |= task.kind != kF;
    const auto has = [&](size_t which, nxd_pp_task_kind_t kind) {
      return made_[which].kinds[m].count(kind) != 0;
    };
    if (has(s, task.kind)) return false;
    if (task.kind == kF) {
      if (s > 0 && !has(s - 1, kF)) return false;
    } else if (task.kind == kW) {
      if (!has(s, kI) || stage.weights != task.microbatch) return false;
      ++stage.weights;
    } else {
      if (!has(s, kF) || stage.inputs != task.microbatch) return false;
      if (task.kind == kB && stage.weights != task.microbatch) return false;
      if (s + 1 < made_.size() && !has(s + 1, kB) && !has(s + 1, kI)) return false;
      ++stage.inputs;
      stage.weights += task.kind == kB;
    }
    stage.kinds[m].insert(task.kind);
    return true;
  }

  const PipelineShape& shape_;
  const TaskLists& lists_;
  std::vector<Stage> made_;
  bool trains_ = false;
};

bool can_run(const PipelineShape& shape, const TaskLists& lists) {
  return Checker(shape, lists).can_run();
}

// "" when the schedule is accepted.
std::string refusal(const PipelineShape& shape, const TaskLists& lists) {
  std::vector<nxd_pp_task_t> tasks;
  std::vector<size_t> counts;
  for (const auto& list : lists) {
    counts.push_back(list.size());
    for (const auto& task : list) tasks.push_back({task.kind, task.microbatch, task.chunk});
  }
  auto* schedule = reinterpret_cast<nxd_pp_schedule_t*>(8);
  const nxd_status_t status = nxd_pp_schedule_create_tasks(
      shape.ranks, shape.chunks, shape.microbatches, tasks.data(), counts.data(), &schedule);
  if (status == NXD_OK) {
    nxd_pp_schedule_destroy(schedule);
    return "";
  }
  assert_int_equal(status, NXD_ERROR_INVALID_ARGUMENT);
  assert_null(schedule);
  return nxd_last_error();
}

void assert_says(const std::string& message, const std::string& part) {
  if (message.find(part) == std::string::npos) {
    fail_msg("expected \"...%s...\", got \"%s\"", part.c_str(), message.c_str());
  }
}

void test_random_schedules(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const nxd_pp_schedule_kind_t kind = kKinds[static_cast<size_t>(i) % kKinds.size()];
    const PipelineShape shape = random_shape(random, kind);
    const Schedule schedule = Schedule::make(kind, shape);
    if (i % 10 < 5) assert_true(can_run(shape, schedule.tasks()));
    assert_true(schedule.has_backward() == (kind != NXD_PP_SCHEDULE_INFERENCE));
    assert_true(schedule.splits_backward() == (kind == NXD_PP_SCHEDULE_ZERO_BUBBLE));

    const ScheduleReport report = report_schedule(schedule, uniform(shape, 3, 4, 2));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int kept = report.rank_activations[static_cast<size_t>(rank)];
      assert_int_equal(kept, most_activations(kind, shape, rank));
      assert_true(build_rank_tasks(kind, shape, rank) == schedule.tasks(rank));
      const int m = shape.microbatches;
      if (kind == NXD_PP_SCHEDULE_1F1B) assert_int_equal(kept, std::min(shape.ranks - rank, m));
      if (kind == NXD_PP_SCHEDULE_GPIPE) assert_int_equal(kept, m * shape.chunks);
      if (kind == NXD_PP_SCHEDULE_ZERO_BUBBLE) assert_int_equal(kept, std::min(shape.ranks, m));
      if (kind == NXD_PP_SCHEDULE_INFERENCE) assert_int_equal(kept, 0);
    }
    assert_true(report.critical_path <= report.makespan);
    assert_true(report.bubble_share >= 0 && report.bubble_share < 1);
  }
}

// Good schedules, broken in one place.
struct Broken {
  PipelineShape shape;
  TaskLists lists;
  size_t rank, place;
};

Broken break_one(std::mt19937_64& random, nxd_pp_schedule_kind_t kind) {
  PipelineShape shape = random_shape(random, kind);
  while (shape.stages() * shape.microbatches < 2) shape = random_shape(random, kind);
  Broken broken{shape, Schedule::make(kind, shape).tasks(), 0, 0};
  broken.rank = random() % broken.lists.size();
  broken.place = random() % broken.lists[broken.rank].size();
  return broken;
}

std::string describe(size_t rank, const PipelineTask& task) {
  return "rank " + std::to_string(rank) + " " + nxd::task_name(task.kind) + " of microbatch " +
         std::to_string(task.microbatch) + ", chunk " + std::to_string(task.chunk);
}

void test_removed_and_doubled(void**) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const nxd_pp_schedule_kind_t kind = kKinds[static_cast<size_t>(i) % kKinds.size()];
    Broken broken = break_one(random, kind);
    auto& list = broken.lists[broken.rank];
    const PipelineTask task = list[broken.place];
    const auto at = [&](size_t place) { return list.begin() + static_cast<long>(place); };
    switch (i / 5 % 4) {
      case 0:
        list.erase(at(broken.place));
        assert_says(refusal(broken.shape, broken.lists),
                    "expected " + describe(broken.rank, task) + ", which is missing");
        break;
      case 1:
        list.insert(at(random() % (list.size() + 1)), task);
        assert_says(refusal(broken.shape, broken.lists),
                    "expected " + describe(broken.rank, task) + " once, got it twice");
        break;
      case 2:
        list[broken.place].chunk = broken.shape.chunks;
        assert_says(refusal(broken.shape, broken.lists),
                    "task " + std::to_string(broken.place) + " of rank " +
                        std::to_string(broken.rank) + ", " + nxd::task_name(task.kind) +
                        ": expected a chunk from 0 to " + std::to_string(broken.shape.chunks - 1));
        break;
      default:
        list[broken.place].microbatch = i % 8 < 4 ? -1 : broken.shape.microbatches;
        assert_says(refusal(broken.shape, broken.lists), "expected a microbatch from 0 to ");
        break;
    }
  }
}

// Two tasks of a rank change places: accepted exactly where the definition allows it.
void test_swapped(void**) {
  std::mt19937_64 random(3);
  int refused = 0, accepted = 0, deadlocks = 0;
  for (int i = 0; i < 4000; ++i) {
    const nxd_pp_schedule_kind_t kind = kKinds[static_cast<size_t>(i) % kKinds.size()];
    Broken broken = break_one(random, kind);
    auto& list = broken.lists[broken.rank];
    std::swap(list[broken.place], list[std::min(broken.place + 1 + random() % 3, list.size() - 1)]);
    const std::string message = refusal(broken.shape, broken.lists);
    assert_true(message.empty() == can_run(broken.shape, broken.lists));
    ++(message.empty() ? accepted : refused);
    deadlocks += message.find("without deadlock") != std::string::npos;
  }
  assert_true(refused > 500 && accepted > 500 && deadlocks > 200);
}

// A rank that wants its first gradient before it has sent what the rank after it needs for that.
void test_deadlock_message(void**) {
  for (int p = 3; p <= 8; ++p) {
    for (int r = 0; r <= p - 3; ++r) {
      const PipelineShape shape{p, 1, p + 2};
      TaskLists lists = Schedule::make(NXD_PP_SCHEDULE_1F1B, shape).tasks();
      auto& list = lists[static_cast<size_t>(r)];
      const auto backward = std::find(list.begin(), list.end(), PipelineTask{kB, 0, 0});
      std::rotate(list.begin() + 1, backward, backward + 1);
      const std::string message = refusal(shape, lists);
      const auto self = static_cast<size_t>(r);
      assert_says(message, "expected an order without deadlock");
      assert_says(message, describe(self, {kB, 0, 0}) + " waits for " +
                               describe(self + 1, {kB, 0, 0}) + ", which comes later");
      assert_says(message, describe(self + 1, {kF, 1, 0}) + " waits for " +
                               describe(self, {kF, 1, 0}) + ", which comes later");
    }
  }
  // A rank that waits for itself.
  assert_says(refusal({1, 2, 1}, {{{kF, 0, 1}, {kF, 0, 0}}}),
              "rank 0 forward of microbatch 0, chunk 1 waits for rank 0 forward of microbatch 0, "
              "chunk 0, which comes later");
  // A circle through many ranks is cut short.
  TaskLists ring(100);
  for (size_t rank = 0; rank < 100; ++rank) {
    ring[rank] = {{kF, 0, 0}, {kF, 0, 1}, {kB, 0, 1}, {kB, 0, 0}};
    if (rank == 0) std::swap(ring[rank][0], ring[rank][1]);
  }
  assert_says(refusal({100, 2, 1}, ring), "; and 92 more");
}

void test_orders_refused(void**) {
  const PipelineShape shape{1, 1, 2};
  assert_says(refusal(shape, {{{kF, 0, 0}, {kF, 1, 0}, {kB, 1, 0}, {kB, 0, 0}}}),
              "task 3: expected rank 0 backward of microbatch 0, chunk 0 before that of microbatch "
              "1: the gradients of a chunk are added up in the order of the microbatches");
  assert_says(
      refusal(shape, {{{kF, 0, 0}, {kF, 1, 0}, {kI, 0, 0}, {kI, 1, 0}, {kW, 1, 0}, {kW, 0, 0}}}),
      "expected rank 0 weight gradient of microbatch 0, chunk 0 before that of");
  assert_says(refusal(shape, {{{kB, 0, 0}, {kF, 0, 0}, {kF, 1, 0}, {kB, 1, 0}}}),
              "expected rank 0 backward of microbatch 0, chunk 0 after its forward, got it before");
  assert_says(refusal({1, 1, 1}, {{{kF, 0, 0}, {kW, 0, 0}, {kI, 0, 0}}}),
              "weight gradient of microbatch 0, chunk 0 after its input gradient, got it before");
  assert_says(refusal({1, 1, 1}, {{{kF, 0, 0}, {kI, 0, 0}}}),
              "expected rank 0 weight gradient of microbatch 0, chunk 0, which is missing");
  assert_says(refusal({1, 1, 1}, {{{kF, 0, 0}, {kI, 0, 0}, {kB, 0, 0}}}), "once, got it twice");
  assert_says(refusal({1, 1, 1}, {{{NXD_PP_TASK_INVALID, 0, 0}}}),
              "task 0 of rank 0: expected an NXD_PP_TASK_*, got -1");
  assert_says(refusal({2, 1, 1}, {{{kF, 0, 0}, {kB, 0, 0}}, {{kF, 0, 0}}}),
              "expected rank 1 backward of microbatch 0, chunk 0, which is missing");
  assert_says(refusal({1, 1, 1 << 26}, {{{kF, 0, 0}, {kF, 2, 0}}}),
              "expected rank 0 forward of microbatch 1, chunk 0, which is missing");
  // Whole and split backward passes may be mixed.
  assert_string_equal(
      refusal(shape, {{{kF, 0, 0}, {kF, 1, 0}, {kI, 0, 0}, {kW, 0, 0}, {kB, 1, 0}}}).c_str(), "");
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
  const double bad[] = {1, -1};
  nxd_pp_costs_t costs = NXD_PP_COSTS_INIT;
  costs.backward_weight = bad;
  report.makespan = 5;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_equals(report.makespan, 0);
  assert_says(nxd_last_error(), "costs->backward_weight[1]: expected a duration of at least 0");
  costs = NXD_PP_COSTS_INIT;
  costs.transfer = -1;
  assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report),
                   NXD_ERROR_INVALID_ARGUMENT);
  nxd_pp_schedule_destroy(schedule);
  nxd_pp_schedule_destroy(nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_oracle),
                              cmocka_unit_test(test_golden_lists),
                              cmocka_unit_test(test_formulas),
                              cmocka_unit_test(test_report_by_hand),
                              cmocka_unit_test(test_critical_path),
                              cmocka_unit_test(test_random_schedules),
                              cmocka_unit_test(test_removed_and_doubled),
                              cmocka_unit_test(test_swapped),
                              cmocka_unit_test(test_deadlock_message),
                              cmocka_unit_test(test_orders_refused),
                              cmocka_unit_test(test_shapes_refused),
                              cmocka_unit_test(test_names),
                              cmocka_unit_test(test_many_ranks),
                              cmocka_unit_test(test_bad_calls)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
