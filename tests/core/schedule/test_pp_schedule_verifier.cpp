// The proof of pipeline schedules against a checker that knows nothing but its definition: good
// schedules of all kinds, and the same broken in one place.
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/schedule_builders.h"
#include "core/schedule/schedule_report.h"

#include "support/check.h"

using nxd::PipelineCosts;
using nxd::PipelineShape;
using nxd::PipelineTask;
using nxd::Schedule;
using nxd::ScheduleReport;
using TaskLists = std::vector<std::vector<PipelineTask>>;

namespace {

constexpr nxd_pp_task_kind_t kF = NXD_PP_TASK_FORWARD, kB = NXD_PP_TASK_BACKWARD,
                             kI = NXD_PP_TASK_INPUT_GRAD, kW = NXD_PP_TASK_WEIGHT_GRAD;
const std::vector<nxd_pp_schedule_kind_t> kKinds = {
    NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_INTERLEAVED, NXD_PP_SCHEDULE_GPIPE,
    NXD_PP_SCHEDULE_ZERO_BUBBLE, NXD_PP_SCHEDULE_INFERENCE};

PipelineCosts uniform(const PipelineShape& shape, double forward, double input, double weight) {
  const auto stages = static_cast<size_t>(shape.stages());
  return {std::vector<double>(stages, forward), std::vector<double>(stages, input),
          std::vector<double>(stages, weight), 0};
}

PipelineShape random_shape(std::mt19937_64& random, nxd_pp_schedule_kind_t kind) {
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  PipelineShape shape{draw(1, 10), draw(1, 4), draw(1, 24)};
  if (kind == NXD_PP_SCHEDULE_1F1B || kind == NXD_PP_SCHEDULE_ZERO_BUBBLE) shape.chunks = 1;
  if (kind == NXD_PP_SCHEDULE_INTERLEAVED) {
    shape.chunks = draw(2, 4);
    shape.microbatches = shape.ranks * draw(1, 3);
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
      for (const unsigned kinds : stage.kinds) {
        const bool back = has_kind(kinds, kB) || (has_kind(kinds, kI) && has_kind(kinds, kW));
        if (!has_kind(kinds, kF) || (trains_ && !back)) return false;
      }
    }
    return true;
  }

 private:
  struct Stage {
    std::vector<unsigned> kinds;  // a bit for each made, of each microbatch
    int inputs = 0, weights = 0;  // gradients formed, in order
  };

  static bool has_kind(unsigned kinds, nxd_pp_task_kind_t kind) {
    return (kinds >> kind & 1U) != 0;
  }

  bool make(size_t rank, const PipelineTask& task) {
    const auto s = static_cast<size_t>(task.chunk * shape_.ranks) + rank;
    const auto m = static_cast<size_t>(task.microbatch);
    Stage& stage = made_[s];
    trains_ |= task.kind != kF;
    const auto has = [&](size_t which, nxd_pp_task_kind_t kind) {
      return has_kind(made_[which].kinds[m], kind);
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
    stage.kinds[m] |= 1U << task.kind;
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
  const auto message_of_ring = [](int ranks) {
    TaskLists ring(static_cast<size_t>(ranks));
    for (auto& tasks : ring) tasks = {{kF, 0, 0}, {kF, 0, 1}, {kB, 0, 1}, {kB, 0, 0}};
    std::swap(ring[0][0], ring[0][1]);
    return refusal({ranks, 2, 1}, ring);
  };
  assert_says(message_of_ring(100), "; and 92 more");
  assert_says(message_of_ring(9), "; and 1 more");
  assert_true(message_of_ring(8).find("more") == std::string::npos);
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
  assert_says(refusal({1, 1, 1}, {{{kF, 0, 0}, {kW, 0, 0}, {kB, 0, 0}}}),
              "weight gradient of microbatch 0, chunk 0 after its input gradient, got it before");
  assert_says(refusal({1, 1, 1}, {{{kF, 0, 0}, {kI, 0, 0}}}),
              "expected rank 0 weight gradient of microbatch 0, chunk 0, which is missing");
  assert_says(refusal({1, 1, 1}, {{{kF, 0, 0}, {kI, 0, 0}, {kB, 0, 0}}}), "once, got it twice");
  assert_says(refusal({1, 1, 1}, {{{NXD_PP_TASK_INVALID, 0, 0}}}),
              "task 0 of rank 0: expected an NXD_PP_TASK_*, got -1");
  constexpr int kBeyond = NXD_PP_TASK_WEIGHT_GRAD + 1;
  assert_says(refusal({1, 1, 1}, {{{static_cast<nxd_pp_task_kind_t>(kBeyond), 0, 0}}}),
              "task 0 of rank 0: expected an NXD_PP_TASK_*, got 4");
  assert_says(refusal({2, 1, 1}, {{{kF, 0, 0}, {kB, 0, 0}}, {{kF, 0, 0}}}),
              "expected rank 1 backward of microbatch 0, chunk 0, which is missing");
  assert_says(refusal({1, 1, 1 << 22}, {{{kF, 0, 0}, {kF, 2, 0}}}),
              "expected rank 0 forward of microbatch 1, chunk 0, which is missing");
  // Whole and split backward passes may be mixed.
  assert_string_equal(
      refusal(shape, {{{kF, 0, 0}, {kF, 1, 0}, {kI, 0, 0}, {kW, 0, 0}, {kB, 1, 0}}}).c_str(), "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_random_schedules), cmocka_unit_test(test_removed_and_doubled),
      cmocka_unit_test(test_swapped), cmocka_unit_test(test_deadlock_message),
      cmocka_unit_test(test_orders_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
