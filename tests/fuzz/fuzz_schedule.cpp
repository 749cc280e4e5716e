// A pipeline's schedule of a caller's own tasks, the library's own for any shape, and cut points.
#include "core/planner/split_points.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_report.h"
#include "fuzz.h"

namespace {

void check(const nxd::Schedule& schedule, nxd_fuzz::Input& in) {
  nxd::PipelineCosts costs;
  const auto stages = static_cast<size_t>(schedule.shape().stages());
  for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
    for (size_t i = 0; i < stages; ++i) list->push_back(1 + in.byte());
  }
  const auto report = nxd::report_schedule(schedule, costs);
  nxd_fuzz::expect(report.makespan >= report.critical_path && report.bubble_share >= 0,
                   "a schedule that ends before its longest path");
}

void build(nxd_fuzz::Input& in) {
  const auto kind = static_cast<nxd_pp_schedule_kind_t>(in.choice(-1, 6));
  const nxd::PipelineShape shape{in.choice(0, 9), in.choice(0, 5), in.choice(0, 24)};
  nxd_fuzz::parse([&] { check(nxd::Schedule::make(kind, shape), in); });
}

// A schedule of the library's own, with some of its tasks changed.
void change(nxd_fuzz::Input& in) {
  const auto kind = static_cast<nxd_pp_schedule_kind_t>(in.choice(0, 5));
  nxd_fuzz::parse([&] {
    const nxd::PipelineShape shape{in.choice(1, 5), in.choice(1, 3), in.choice(1, 9)};
    auto tasks = nxd::Schedule::make(kind, shape).tasks();
    for (int edits = in.choice(0, 5); edits > 0; --edits) {
      auto& list = tasks[static_cast<size_t>(in.byte()) % tasks.size()];
      if (list.empty()) continue;
      const size_t a = static_cast<size_t>(in.byte()) % list.size();
      const size_t b = static_cast<size_t>(in.byte()) % list.size();
      switch (in.choice(0, 5)) {
        case 0: std::swap(list[a], list[b]); break;
        case 1: list.erase(list.begin() + static_cast<ptrdiff_t>(a)); break;
        case 2: list.push_back(list[a]); break;
        case 3: list[a].microbatch = in.number<int32_t>(); break;
        case 4: list[a].chunk = in.number<int32_t>(); break;
        default: list[a].kind = in.number<int32_t>(); break;
      }
    }
    check(nxd::Schedule::of_tasks(shape, std::move(tasks)), in);
  });
}

// A schedule of any tasks at all.
void make_up(nxd_fuzz::Input& in) {
  const nxd::PipelineShape shape{in.choice(-1, 4), in.choice(-1, 3), in.number<int32_t>()};
  std::vector<std::vector<nxd::PipelineTask>> tasks(
      static_cast<size_t>(std::max(0, shape.ranks + in.choice(0, 1))));
  while (in.left() > 0 && !tasks.empty()) {
    auto& list = tasks[static_cast<size_t>(in.byte()) % tasks.size()];
    list.push_back({in.choice(-1, 4), in.choice(-1, 8), in.choice(-1, 4)});
  }
  nxd_fuzz::parse([&] { nxd::Schedule::of_tasks(shape, std::move(tasks)); });
}

void cut(nxd_fuzz::Input& in) {
  const int stages = in.choice(-1, 20);
  nxd_fuzz::parse([&] { nxd::even_split_points(in.number<int32_t>() % 100000, stages); });
  std::vector<double> costs;
  while (in.left() > 0 && costs.size() < 64) costs.push_back(in.real());
  nxd_fuzz::parse([&] {
    const auto cuts = nxd::balanced_split_points(costs, stages);
    nxd_fuzz::expect(cuts.size() + 1 == static_cast<size_t>(stages), "a number of cuts");
    for (size_t i = 1; i < cuts.size(); ++i) {
      nxd_fuzz::expect(cuts[i] > cuts[i - 1], "a stage without an item");
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  switch (in.choice(0, 3)) {
    case 0: build(in); break;
    case 1: change(in); break;
    case 2: make_up(in); break;
    default: cut(in); break;
  }
  return 0;
}
