#include "core/optim/gradient_finish.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/base/dtype.h"
#include "core/base/phase_clock.h"
#include "core/comm/exchanged_buffer.h"
#include "core/kernels/abs_sum.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/optimizer_kernels.h"
#include "core/optim/group_agreement.h"
#include "core/optim/step_outcome.h"

namespace nxd {
namespace {

// Large enough that latency does not count, small beside a model.
constexpr size_t kExchangeBytes = size_t{32} << 20;

// Options with their defaults in place.
struct Plan {
  double scale = 1;
  double max_norm = 0;
  double norm_type = 2;
  nxd_reduce_t reduce = NXD_REDUCE_SUM;
  bool check_finite = true;
};

Plan resolve(const nxd_finish_options_t& options) {
  Plan plan;
  plan.scale = options.scale == 0 ? 1 : options.scale;
  plan.max_norm = options.max_norm;
  plan.norm_type = options.norm_type == 0 ? 2 : options.norm_type;
  plan.reduce = options.data_parallel_reduce;
  plan.check_finite = options.skip_nonfinite_check == 0;
  return plan;
}

// An error in the options; "" for none.
std::string complaint(const nxd_finish_options_t& options) {
  const Plan plan = resolve(options);
  if (!std::isfinite(plan.scale)) {
    return text("scale: expected a finite number, got ", plan.scale);
  }
  // Kernels multiply by it in F32.
  if (std::fabs(plan.scale) > std::numeric_limits<float>::max()) {
    return text("scale: expected a number that f32 has, at most ",
                std::numeric_limits<float>::max(), ", got ", plan.scale);
  }
  if (!(plan.max_norm >= 0) || std::isinf(plan.max_norm)) {
    return text("max_norm: expected a finite number of at least 0, got ", plan.max_norm);
  }
  if (plan.norm_type != 1 && plan.norm_type != 2 &&
      !(std::isinf(plan.norm_type) && plan.norm_type > 0)) {
    return text("norm_type: expected 1, 2 or infinity, got ", plan.norm_type);
  }
  if (plan.reduce != NXD_REDUCE_SUM && plan.reduce != NXD_REDUCE_AVG) {
    return text("data_parallel_reduce: expected NXD_REDUCE_SUM or NXD_REDUCE_AVG, got ",
                plan.reduce);
  }
  return "";
}

// A run of gradient elements that this rank has to finish.
struct Piece {
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
std::vector<Piece> pieces_of(ParameterSource& source, const GradientReducer& reducer,
                             const std::vector<char>& present) {
  std::vector<Piece> pieces;
  const auto add = [&](size_t parameter, int64_t begin, int64_t count) {
    if (!present[parameter] || count == 0) return;
    const nxd_dtype_t dtype = source.info(parameter).grad_dtype;
    void* grad = source.buffers(parameter).grad;
    check_internal(grad != nullptr, source.info(parameter).name, ": no gradient");
    pieces.push_back({parameter, element(grad, begin, dtype), count, dtype});
  };
  if (!reducer.options().scatter) {
    for (size_t i = 0; i < source.size(); ++i) add(i, 0, source.info(i).count());
    return pieces;
  }
  for (size_t bucket = 0; bucket < reducer.plan().buckets().size(); ++bucket) {
    for (const auto& segment : reducer.plan().part(bucket, reducer.part())) {
      add(segment.parameter, segment.parameter_offset, segment.count);
    }
  }
  return pieces;
}

// Sums pieces of one dtype over a group, several in one call.
void sum_together(ProcessGroup& group, const std::vector<Piece>& pieces) {
  const nxd_dtype_t dtype = pieces.front().dtype;
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes();
  if (pieces.size() == 1) {
    char* data = pieces.front().data;
    group.run(Call::all_reduce(data, data, bytes / dtype_size(dtype), dtype, NXD_REDUCE_SUM));
    return;
  }
  const ExchangedBuffer buffer(group, bytes);
  char* at = buffer.data();
  for (const Piece& piece : pieces) {
    std::memcpy(at, piece.data, piece.bytes());
    at += piece.bytes();
  }
  group.run(Call::all_reduce(buffer.data(), buffer.data(), bytes / dtype_size(dtype), dtype,
                             NXD_REDUCE_SUM));
  at = buffer.data();
  for (const Piece& piece : pieces) {
    std::memcpy(piece.data, at, piece.bytes());
    at += piece.bytes();
  }
}

// Sums over gradient groups. Groups of the same ranks are as good as one, whoever made them; the
// order of the calls is that of the parameters, which all ranks of such a group have alike.
void sum_over_gradient_groups(ParameterSource& source, const std::vector<Piece>& pieces) {
  using Key = std::pair<std::vector<int>, nxd_dtype_t>;
  std::vector<std::pair<ProcessGroup*, Key>> order;
  std::map<Key, std::vector<Piece>> waiting;
  std::map<Key, size_t> bytes;
  const auto flush = [&](ProcessGroup& group, const Key& key) {
    if (!waiting[key].empty()) sum_together(group, waiting[key]);
    waiting[key].clear();
    bytes[key] = 0;
  };
  for (const Piece& piece : pieces) {
    ProcessGroup* group = source.info(piece.parameter).gradient_group.get();
    if (!group || group->size() == 1) continue;
    const Key key{group->ranks(), piece.dtype};
    if (waiting.count(key) == 0) order.push_back({group, key});
    if (bytes[key] + piece.bytes() > kExchangeBytes) flush(*group, key);
    waiting[key].push_back(piece);
    bytes[key] += piece.bytes();
  }
  for (const auto& [group, key] : order) flush(*group, key);
}

double local_norm(const Piece& piece, double type) {
  if (std::isinf(type)) return kernels::max_abs(piece.dtype, piece.count, piece.data);
  if (type == 1) return kernels::abs_sum(piece.dtype, piece.count, piece.data);
  return kernels::sum_of_squares(piece.dtype, piece.count, piece.data);
}

// One of the ranks that hold the same elements counts them; the sum over ranks has the same bits on
// all.
double norm_of(const ParameterSource& source, const std::vector<Piece>& pieces,
               const std::vector<ProcessGroup*>& groups, double type) {
  double total = 0;
  for (const Piece& piece : pieces) {
    if (!source.info(piece.parameter).counts_in_norm) continue;
    const double part = local_norm(piece, type);
    if (!std::isinf(type)) {
      total += part;
    } else if (std::isnan(part) || part > total) {
      total = part;
    }
    if (std::isnan(total)) break;
  }
  const nxd_reduce_t reduce = std::isinf(type) ? NXD_REDUCE_MAX : NXD_REDUCE_SUM;
  for (ProcessGroup* group : groups) {
    if (group && group->size() > 1)
      group->run(Call::all_reduce(&total, &total, 1, NXD_DTYPE_F64, reduce));
  }
  return type == 2 ? std::sqrt(total) : total;
}

}  // namespace

namespace {

void agree_on_options(const ParameterSource& source, const nxd_finish_options_t& options,
                      const std::string& torn) {
  const std::string wrong = complaint(options);
  const Plan plan = wrong.empty() ? resolve(options) : Plan{};
  OwnRefusal own = wrong.empty() ? OwnRefusal(torn, NXD_ERROR_INVALID_STATE) : OwnRefusal(wrong);
  if (own.why.empty() && plan.max_norm > 0) {
    own = OwnRefusal(source.why_no_clipping(), NXD_ERROR_UNSUPPORTED);
  }
  const OptimizerGroups& groups = source.groups();
  std::vector<ProcessGroup*> all, of_stage;
  for (ProcessGroup* group : {groups.tensor.get(), groups.data.get()}) {
    if (group) of_stage.push_back(group);
  }
  all = of_stage;
  if (groups.pipeline) all.push_back(groups.pipeline.get());
  agree(all, groups.world_rank,
        {{"scale", plan.scale},
         {"max_norm", plan.max_norm},
         {"norm_type", std::isinf(plan.norm_type) ? -1.0 : plan.norm_type},
         {"data_parallel_reduce", static_cast<double>(plan.reduce)},
         {"skip_nonfinite_check", plan.check_finite ? 0.0 : 1.0}},
        own);
  // Stages of a pipeline have parameters of their own.
  agree(of_stage, groups.world_rank,
        {{"number of trainable parameters", static_cast<double>(source.size())}}, "");
}

}  // namespace

void agree_on_finish(ParameterSource& source, GradientReducer* reducer,
                     const nxd_finish_options_t& options, const std::string& torn) {
  try {
    if (reducer) reducer->start_rest();
    agree_on_options(source, options, torn);
  } catch (const Error& error) {
    const bool refused =
        error.status() == NXD_ERROR_INVALID_ARGUMENT || error.status() == NXD_ERROR_UNSUPPORTED;
    if (reducer && !refused) reducer->abandon();
    check_state(torn.empty(), torn);  // whatever became of the peers
    throw;
  }
}

FinishedGradients finish(ParameterSource& source, GradientReducer& reducer,
                         const nxd_finish_options_t& options) {
  const Plan plan = resolve(options);
  FinishedGradients finished;
  finished.present = reducer.wait();
  const std::vector<Piece> pieces = pieces_of(source, reducer, finished.present);
  sum_over_gradient_groups(source, pieces);
  const OptimizerGroups& groups = source.groups();
  std::vector<ProcessGroup*> over{groups.tensor.get(), groups.pipeline.get()};
  // Parts of one copy of the model.
  if (reducer.options().scatter) over.push_back(groups.data.get());
  finished.norm = std::fabs(plan.scale) * norm_of(source, pieces, over, plan.norm_type);
  finished.finite = std::isfinite(finished.norm);
  finished.factor = plan.scale;
  double clip = 1;
  if (finished.finite && plan.max_norm > 0) {
    clip = std::min(1.0, plan.max_norm / (finished.norm + 1e-6));
    finished.factor *= clip;
  }
  // No element is larger than the norm. Where that is beyond F32 the multiplied gradients may be.
  if (finished.norm * clip > std::numeric_limits<float>::max()) finished.finite = false;
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
                       const nxd_finish_options_t& options) {
  const FinishedGradients finished = before_update(source.step(), [&] {
    agree_on_finish(source, &reducer, options);
    return finish(source, reducer, options);
  });
  apply_factor(source, finished);
  check_state(finished.finite || options.skip_nonfinite_check != 0, "rank ",
              source.groups().world_rank, ": the norm of the gradients is ", finished.norm,
              "; they are left unclipped");
  return finished.norm;
}

}  // namespace nxd
