#include "core/planner/plan_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/planner/layout_plan.h"

namespace nxd {
namespace {

constexpr int kMostRanks = 65536;

// The divisors of at most `most`, in order.
std::vector<int> divisors(int64_t number, int64_t most) {
  std::vector<int> out;
  const auto add = [&](int64_t divisor) {
    if (divisor <= most) out.push_back(static_cast<int>(divisor));
  };
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    add(i);
    if (i * i != number) add(number / i);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// A layout, with whatever ZeRO stage, and the time that no step of it is shorter than.
struct Candidate {
  nxd_plan_layout_t layout;
  double least = 0;
};

class PlanSearch {
 public:
  PlanSearch(const ModelSizes& model, const nxd_plan_machine_t& machine,
             const PlanSearchOptions& options)
      : model_(model), machine_(machine), options_(options) {}

  // From the candidate that could be best on, until none can be better than those found.
  std::vector<FoundPlan> best(size_t count) {
    list_candidates();
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.least < b.least; });
    for (const Candidate& candidate : candidates_) {
      if (found_.size() == count && candidate.least > found_.back().prediction.step_seconds) break;
      visit(candidate.layout, count);
    }
    if (found_.empty()) reject();
    return std::move(found_);
  }

 private:
  static bool is_better(const FoundPlan& a, const FoundPlan& b) {
    return std::pair(a.prediction.step_seconds, a.prediction.total_bytes) <
           std::pair(b.prediction.step_seconds, b.prediction.total_bytes);
  }

  static int most_zero_stage(const nxd_plan_layout_t& layout) {
    return layout.data_parallel_size > 1 ? 1 : 0;
  }

  void visit(nxd_plan_layout_t layout, size_t count) {
    std::optional<ScheduleReport> report;
    for (; layout.zero_stage <= most_zero_stage(layout); ++layout.zero_stage) {
      const LayoutPlan plan(model_, machine_, layout, layers_of(layout));
      if (!plan.fits()) {
        const double bytes = plan.total_bytes();
        if (bytes < fewest_bytes_) {
          fewest_bytes_ = bytes;
          leanest_ = layout;
        }
        continue;
      }
      if (!report) report = plan.play();
      const FoundPlan found{layout, plan.predict(*report)};
      found_.insert(std::upper_bound(found_.begin(), found_.end(), found, is_better), found);
      if (found_.size() > count) found_.pop_back();
    }
  }

  [[noreturn]] void reject() const {
    if (candidates_.empty()) {
      fail(NXD_ERROR_INVALID_ARGUMENT, "options: expected ", options_.world_size,
           " ranks and a batch of ", options_.batch_size,
           " sequences that some layout divides; the model has ", model_.layers, " layers, ",
           model_.heads, " heads and ", model_.kv_heads, " key heads");
    }
    fail(NXD_ERROR_INVALID_ARGUMENT, "machine->memory_bytes: expected at least ",
         static_cast<uint64_t>(std::ceil(fewest_bytes_)), " for tensor ",
         leanest_.tensor_parallel_size, " x pipeline ", leanest_.pipeline_parallel_size, " x data ",
         leanest_.data_parallel_size, ", which needs least, got ", machine_.memory_bytes);
  }

  const std::vector<int>& layers_of(const nxd_plan_layout_t& layout) {
    const int stages = layout.pipeline_parallel_size * layout.virtual_size;
    auto& layers = layers_[{stages, layout.partition}];
    if (layers.empty()) {
      layers = stage_layers(model_, layout.partition, stages, layout.sequence_length);
    }
    return layers;
  }

  void list_candidates() {
    for (const int tensor : divisors(options_.world_size, model_.heads)) {
      const int rest = options_.world_size / tensor;
      for (const int pipeline : divisors(rest, model_.layers)) {
        nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
        layout.tensor_parallel_size = tensor;
        layout.pipeline_parallel_size = pipeline;
        layout.data_parallel_size = rest / pipeline;
        layout.sequence_length = options_.sequence_length;
        layout.dtype = options_.dtype;
        if (options_.batch_size % layout.data_parallel_size == 0) list_microbatches(layout);
      }
    }
  }

  void list_microbatches(nxd_plan_layout_t layout) {
    const int64_t sequences = options_.batch_size / layout.data_parallel_size;
    for (const int microbatches : divisors(sequences, INT32_MAX)) {
      if (sequences / microbatches > INT32_MAX) continue;
      layout.num_microbatches = microbatches;
      layout.microbatch_size = static_cast<int32_t>(sequences / microbatches);
      layout.virtual_size = 1;
      list_schedule(layout, NXD_PP_SCHEDULE_1F1B);
      if (layout.pipeline_parallel_size == 1) continue;
      list_schedule(layout, NXD_PP_SCHEDULE_ZERO_BUBBLE);
      list_schedule(layout, NXD_PP_SCHEDULE_GPIPE);
      for (int chunks = 2; chunks <= options_.max_virtual_size; ++chunks) {
        layout.virtual_size = chunks;
        if (int64_t{chunks} * layout.pipeline_parallel_size > model_.layers) break;
        if (microbatches % layout.pipeline_parallel_size == 0) {
          list_schedule(layout, NXD_PP_SCHEDULE_INTERLEAVED);
        }
        list_schedule(layout, NXD_PP_SCHEDULE_GPIPE);
      }
    }
  }

  void list_schedule(nxd_plan_layout_t layout, nxd_pp_schedule_kind_t kind) {
    layout.schedule = kind;
    layout.partition = NXD_PP_PARTITION_EVEN;
    list_switches(layout);
    if (layout.pipeline_parallel_size == 1) return;
    const std::vector<int>& even = layers_of(layout);
    layout.partition = NXD_PP_PARTITION_COST;
    if (layers_of(layout) != even) list_switches(layout);
  }

  void list_switches(nxd_plan_layout_t layout) {
    const bool splits = layout.tensor_parallel_size > 1;
    for (layout.sequence_parallel = 0; layout.sequence_parallel <= splits;
         ++layout.sequence_parallel) {
      for (layout.recompute = 0; layout.recompute <= 1; ++layout.recompute) {
        if (!admits(layout)) return;
        double least = std::numeric_limits<double>::infinity();
        for (layout.zero_stage = most_zero_stage(layout); layout.zero_stage >= 0;
             --layout.zero_stage) {
          const LayoutPlan plan(model_, machine_, layout, layers_of(layout));
          least = std::min(least, plan.least_seconds());
        }
        layout.zero_stage = 0;
        candidates_.push_back({layout, least});
      }
    }
  }

  bool admits(const nxd_plan_layout_t& layout) const {
    try {
      read_plan_layout(layout, model_);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  const ModelSizes& model_;
  const nxd_plan_machine_t& machine_;
  const PlanSearchOptions& options_;
  std::map<std::pair<int, nxd_pp_partition_t>, std::vector<int>> layers_;
  std::vector<Candidate> candidates_;
  std::vector<FoundPlan> found_;
  nxd_plan_layout_t leanest_ = NXD_PLAN_LAYOUT_INIT;  // of those that do not fit
  double fewest_bytes_ = std::numeric_limits<double>::infinity();
};

void check(const PlanSearchOptions& options, const ModelSizes& model) {
  check_argument(options.world_size >= 1 && options.world_size <= kMostRanks,
                 "options->world_size: expected 1 to ", kMostRanks, ", got ", options.world_size);
  check_sequence_length("options->sequence_length", options.sequence_length, model);
  check_argument(options.batch_size >= 1 && options.batch_size <= INT32_MAX,
                 "options->batch_size: expected 1 to ", INT32_MAX, " sequences, got ",
                 options.batch_size);
  check_argument(options.dtype == NXD_DTYPE_F32 || options.dtype == NXD_DTYPE_BF16,
                 "options->dtype: expected F32 or BF16, got ", options.dtype);
  check_argument(options.max_virtual_size >= 0 && options.max_virtual_size <= 64,
                 "options->max_virtual_size: expected 0 to 64, got ", options.max_virtual_size);
}

}  // namespace

std::vector<FoundPlan> search_plans(const ModelSizes& model, const nxd_plan_machine_t& machine,
                                    const PlanSearchOptions& options, size_t count) {
  check(options, model);
  return PlanSearch(model, machine, options).best(count);
}

}  // namespace nxd
