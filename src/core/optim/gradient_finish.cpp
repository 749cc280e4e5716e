#include "core/optim/gradient_finish.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/profiler.h"
#include "core/comm/exchanged_buffer.h"
#include "core/comm/take_for_call.h"
#include "core/kernels/elementwise.h"
#include "core/optim/gradient_norm.h"
#include "core/optim/step_outcome.h"

namespace nxd {
namespace {

// Large enough that latency does not count, small beside a model.
constexpr size_t kExchangeBytes = size_t{32} << 20;

// An error in the options; "" for none.
std::string rejection_of(const FinishOptions& options) {
  if (!std::isfinite(options.scale)) {
    return text("scale: expected a finite number, got ", options.scale);
  }
  // Kernels multiply by it in F32.
  using Limits = std::numeric_limits<float>;
  if (!(std::fabs(options.scale) >= Limits::min() && std::fabs(options.scale) <= Limits::max())) {
    return text("scale: expected a number that f32 has, from ", Limits::min(), " to ",
                Limits::max(), ", got ", options.scale);
  }
  if (!(options.max_norm >= 0) || std::isinf(options.max_norm)) {
    return text("max_norm: expected a finite number of at least 0, got ", options.max_norm);
  }
  if (options.norm_type != 1 && options.norm_type != 2 &&
      !(std::isinf(options.norm_type) && options.norm_type > 0)) {
    return text("norm_type: expected 1, 2 or infinity, got ", options.norm_type);
  }
  if (options.reduce != NXD_REDUCE_SUM && options.reduce != NXD_REDUCE_AVG) {
    return text("data_parallel_reduce: expected NXD_REDUCE_SUM or NXD_REDUCE_AVG, got ",
                options.reduce);
  }
  return "";
}

// True where ranks have agreed on nothing but that the options are bad, or that one lacks memory.
bool is_rejection(nxd_status_t status) {
  return status == NXD_ERROR_INVALID_ARGUMENT || status == NXD_ERROR_UNSUPPORTED ||
         status == NXD_ERROR_ABI_MISMATCH || status == NXD_ERROR_OUT_OF_MEMORY;
}

// A span of gradient elements that this rank has to finish.
struct GradientSpan {
  size_t parameter;
  char* data;
  int64_t count;
  nxd_dtype_t dtype;

  size_t bytes() const { return static_cast<size_t>(count) * dtype_size(dtype); }
};

char* element(void* data, int64_t index, nxd_dtype_t dtype) {
  return static_cast<char*>(data) + static_cast<size_t>(index) * dtype_size(dtype);
}

// This rank's parts of the buckets, or all gradients whole.
std::vector<GradientSpan> spans_of(ParameterSource& source, const GradientReducer& reducer,
                                   const std::vector<char>& present) {
  std::vector<GradientSpan> spans;
  const auto add = [&](size_t parameter, int64_t begin, int64_t count) {
    if (!present[parameter] || count == 0) return;
    const nxd_dtype_t dtype = source.info(parameter).grad_dtype;
    void* grad = source.buffers(parameter).grad;
    check_internal(grad != nullptr, source.info(parameter).name, ": no gradient");
    spans.push_back({parameter, element(grad, begin, dtype), count, dtype});
  };
  if (!reducer.options().scatter) {
    for (size_t i = 0; i < source.size(); ++i) add(i, 0, source.info(i).count());
    return spans;
  }
  for (size_t bucket = 0; bucket < reducer.plan().buckets().size(); ++bucket) {
    for (const auto& segment : reducer.plan().part(bucket, reducer.part())) {
      add(segment.parameter, segment.parameter_offset, segment.count);
    }
  }
  return spans;
}

// Sums spans of one dtype over a group, several in one call.
void sum_together(ProcessGroup& group, const std::vector<GradientSpan>& spans) {
  const nxd_dtype_t dtype = spans.front().dtype;
  size_t bytes = 0;
  for (const GradientSpan& span : spans) bytes += span.bytes();
  if (spans.size() == 1) {
    char* data = spans.front().data;
    group.run(Call::all_reduce(data, data, bytes / dtype_size(dtype), dtype, NXD_REDUCE_SUM));
    return;
  }
  ExchangedBuffer buffer;
  take_for_call(&group, "all_reduce", [&] { buffer = ExchangedBuffer(group, bytes); });
  char* at = buffer.data();
  for (const GradientSpan& span : spans) {
    std::memcpy(at, span.data, span.bytes());
    at += span.bytes();
  }
  group.run(Call::all_reduce(buffer.data(), buffer.data(), bytes / dtype_size(dtype), dtype,
                             NXD_REDUCE_SUM));
  at = buffer.data();
  for (const GradientSpan& span : spans) {
    std::memcpy(span.data, at, span.bytes());
    at += span.bytes();
  }
}

// Sums over gradient groups. Groups of the same ranks count as one, even from different makers; the
// order of the calls is that of the parameters, which all ranks of such a group have alike.
void sum_over_gradient_groups(ParameterSource& source, const std::vector<GradientSpan>& spans) {
  using Key = std::pair<std::vector<int>, nxd_dtype_t>;
  std::vector<std::pair<ProcessGroup*, Key>> order;
  std::map<Key, std::vector<GradientSpan>> waiting;
  std::map<Key, size_t> bytes;
  const auto flush = [&](ProcessGroup& group, const Key& key) {
    if (!waiting[key].empty()) sum_together(group, waiting[key]);
    waiting[key].clear();
    bytes[key] = 0;
  };
  for (const GradientSpan& span : spans) {
    ProcessGroup* group = source.info(span.parameter).gradient_group.get();
    if (!group || group->size() == 1) continue;
    const Key key{group->ranks(), span.dtype};
    if (waiting.count(key) == 0) order.push_back({group, key});
    if (bytes[key] + span.bytes() > kExchangeBytes) flush(*group, key);
    waiting[key].push_back(span);
    bytes[key] += span.bytes();
  }
  for (const auto& [group, key] : order) flush(*group, key);
}

// One of the ranks that hold the same elements counts them; the sum over ranks has the same bits on
// all. over_data: data-parallel ranks have parts of one copy of the model.
double joined_norm_of(const ParameterSource& source, const std::vector<GradientSpan>& spans,
                      bool over_data, double type) {
  const OptimizerGroups& groups = source.groups();
  double total = 0;
  for (const GradientSpan& span : spans) {
    if (!counts_in_norm(source.info(span.parameter), groups)) continue;
    total = joined_norm(total, part_of_norm(span.dtype, span.count, span.data, type), type);
    if (std::isnan(total)) break;
  }
  return norm_over_ranks(groups, over_data, total, type);
}

// The gradients that this rank has.
std::vector<char> used_map_of(ParameterSource& source, GradientReducer* reducer) {
  if (reducer) return reducer->used_map();
  std::vector<char> present;
  for (size_t i = 0; i < source.size(); ++i) present.push_back(source.has_gradient(i) ? 1 : 0);
  return present;
}

Proposal proposal_of(ParameterSource& source, GradientReducer* reducer,
                     const FinishOptions& options, const GradientReducer::Options& reduction,
                     const UpdatePlan& update) {
  const OptimizerGroups& groups = source.groups();
  Proposal proposal(groups.world_rank);
  const std::string wrong = rejection_of(options);
  const FinishOptions plan = wrong.empty() ? options : FinishOptions{};
  proposal.attempt([&] { options.given.rethrow(); });
  proposal.reject(NXD_ERROR_INVALID_ARGUMENT, wrong);
  proposal.reject(NXD_ERROR_INVALID_STATE, source.why_reduced_elsewhere());
  proposal.reject(NXD_ERROR_INVALID_STATE, source.why_other_layout());
  proposal.reject(NXD_ERROR_INVALID_STATE, update.why_partial);
  if (reducer) proposal.reject(NXD_ERROR_INVALID_STATE, reducer->why_lost());
  if (plan.max_norm > 0) proposal.reject(NXD_ERROR_UNSUPPORTED, source.why_no_clipping());
  Hash used;
  proposal.attempt([&] {
    const std::vector<char> present = used_map_of(source, reducer);
    for (const char has : present) used.add(has ? uint64_t{1} : uint64_t{2});
    if (reducer) reducer->reserve();
    if (update.take_memory) update.take_memory(present);
  });
  proposal.same("scale", plan.scale).same("max_norm", plan.max_norm);
  proposal.same("norm_type", std::isinf(plan.norm_type) ? -1.0 : plan.norm_type);
  proposal.same("data_parallel_reduce", plan.reduce);
  // The ranks of one ddp agree already. Others, such as tensor-parallel ones, meet here first.
  proposal.same("reduce of the ddp, or data_parallel_reduce without one", reduction.reduce);
  proposal.same("zero_stage of the ddp, or 0 without one", reduction.scatter ? 1 : 0);
  proposal.same("check_finite", plan.check_finite ? 1 : 0);
  proposal.same("step of the context", static_cast<double>(source.step()));
  // Stages of a pipeline have parameters of their own.
  const int stage = groups.pipeline ? groups.pipeline->rank() : 0;
  const int stages = groups.pipeline ? groups.pipeline->size() : 1;
  proposal.same_within(stage, stages, "number of trainable parameters",
                       static_cast<double>(source.size()));
  // Ranks that have frozen different ones would take one parameter's gradient for another's.
  proposal.same_within(stage, stages, "names of the trainable parameters", source.names_digest(),
                       Proposal::Kind::kDigest);
  // Parts and copies of a layer that compute otherwise would give another model without a word.
  proposal.same_within(stage, stages, "options of the layers, such as eps, p and activation",
                       source.options_digest(), Proposal::Kind::kDigest);
  // With dropout on some ranks only they do so, too. A rank may have made no forward at all.
  const std::optional<int> mode = source.mode_of_forwards();
  proposal.same_within(mode ? stage : stages, stages + 1,
                       "mode of the last forward, training (1), evaluation (0) or both (2)",
                       mode.value_or(-1));
  proposal.same_within(stage, stages, "learning rate of group 0 (-1: no update)",
                       update.learning_rate);
  // Schedules follow their number, on all stages alike. A stage without an optimizer has none.
  proposal.same_within(update.updates < 0 ? 1 : 0, 2, "updates made so far",
                       static_cast<double>(update.updates));
  // Copies of a parameter that are updated otherwise would part for good.
  proposal.same_within(stage, stages, "update rule, hyperparameters, groups and schedule",
                       update.digest, Proposal::Kind::kDigest);
  const uint32_t seed = update.rounding_seed ? Hash().add(*update.rounding_seed).folded() : 0;
  proposal.same_within(stage, stages, "seed by which copies round bf16 stochastically", seed,
                       Proposal::Kind::kDigest);
  proposal.compare_within(stage, stages, used.folded());
  proposal.compare_within(stage, stages, reducer ? reducer->open_place() : 0);
  return proposal;
}

}  // namespace

bool agree_on_finish(ParameterSource& source, GradientReducer* reducer,
                     const FinishOptions& options, const GradientReducer::Options& reduction,
                     const UpdatePlan& update) {
  try {
    if (reducer) reducer->start_rest();
    const std::vector<bool> same =
        agree(source.groups().all(), proposal_of(source, reducer, options, reduction, update));
    if (reducer) reducer->settle(same[1]);
    // A rank that had not begun anew has told of the gradients of the step before.
    return same[0] && same[1];
  } catch (const Error& error) {
    if (reducer && is_rejection(error.status())) reducer->keep_open();
    if (reducer && !is_rejection(error.status())) reducer->abandon();
    check_state(update.why_partial.empty(), update.why_partial);  // whatever became of the peers
    throw;
  }
}

FinishedGradients finish(ParameterSource& source, GradientReducer& reducer,
                         const FinishOptions& options, bool same_used_map) {
  FinishedGradients finished;
  finished.present = reducer.wait(same_used_map);
  const std::vector<GradientSpan> spans = spans_of(source, reducer, finished.present);
  sum_over_gradient_groups(source, spans);
  const GradientFactor factor = factor_of(
      joined_norm_of(source, spans, reducer.options().scatter, options.norm_type), options);
  finished.norm = factor.norm;
  finished.factor = factor.factor;
  finished.finite = factor.finite;
  reducer.set_finished();
  return finished;
}

void apply_factor(ParameterSource& source, const FinishedGradients& finished) {
  if (finished.factor == 1) return;
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  for (size_t i = 0; i < source.size(); ++i) {
    if (!finished.present[i]) continue;
    const ParameterInfo& info = source.info(i);
    void* grad = source.buffers(i).grad;
    if (info.grad_dtype == NXD_DTYPE_F64) {
      auto* values = static_cast<double*>(grad);
      for (int64_t k = 0; k < info.count(); ++k) values[k] *= finished.factor;
    } else {
      kernels::scale(info.grad_dtype, info.count(), grad, finished.factor, grad);
    }
  }
}

double finish_in_place(ParameterSource& source, GradientReducer& reducer,
                       const FinishOptions& options) {
  FinishedGradients finished = before_update(source.step(), [&] {
    const bool same_used_map = agree_on_finish(source, &reducer, options, reducer.options());
    return finish(source, reducer, options, same_used_map);
  });
  reducer.keep_for_update();
  const bool is_good = finished.finite || !options.check_finite;
  if (!is_good) finished.factor = options.scale;  // a finite norm may be too large to clip from
  apply_factor(source, finished);
  check_state(is_good, "rank ", source.groups().world_rank, ": the norm of the gradients is ",
              finished.norm, "; they are left unclipped");
  return finished.norm;
}

}  // namespace nxd
