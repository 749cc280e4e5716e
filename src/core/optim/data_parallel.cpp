#include "core/optim/data_parallel.h"

#include <functional>
#include <vector>

#include "core/base/hash.h"
#include "core/optim/value_broadcast.h"

namespace nxd {
namespace {

const char* const kForBuffers =
    "for parameters that are a caller's buffers; a module's ddp sees its gradients itself";
const char* const kForStage0 =
    "ddp: with zero_stage 1 each rank has a part of the gradients; nxd_optimizer_step finishes "
    "and uses them";

void check_options(const DataParallelOptions& options) {
  check_argument(options.bucket_bytes >= 0, "bucket_bytes: expected at least 0, got ",
                 options.bucket_bytes);
  check_argument(options.reduce == NXD_REDUCE_SUM || options.reduce == NXD_REDUCE_AVG,
                 "reduce: expected NXD_REDUCE_SUM or NXD_REDUCE_AVG, got ", options.reduce);
  flag(options.zero_stage, "zero_stage");
}

void agree_on_parameters(const ParameterSource& source, ProcessGroup& group) {
  const int rank = source.groups().world_rank;
  agree({&group}, Proposal(rank).same("number of parameters", static_cast<double>(source.size())));
  Proposal proposal(rank);
  for (size_t i = 0; i < source.size(); ++i) {
    const ParameterInfo& info = source.info(i);
    const std::string of = text(" of parameter ", i, " (", info.name, ")");
    proposal.same_digest("name" + of, Hash().add(info.name).folded())
        .same("elements" + of, static_cast<double>(info.count()))
        .same_digest("order of dimensions in memory" + of, info.order.digest())
        .same_dtype("dtype" + of, info.dtype)
        .same_dtype("dtype of the gradient" + of, info.grad_dtype);
  }
  agree({&group}, proposal);
}

}  // namespace

void DataParallel::mark_ready(size_t) {
  fail(NXD_ERROR_INVALID_STATE, "nxd_ddp_mark_ready: ", kForBuffers);
}

void DataParallel::mark_unused(size_t) {
  fail(NXD_ERROR_INVALID_STATE, "nxd_ddp_mark_unused: ", kForBuffers);
}

void DataParallel::rebind(size_t, const DLTensor*, const DLTensor*) {
  fail(NXD_ERROR_INVALID_STATE, "nxd_ddp_rebind: ", kForBuffers);
}

void DataParallel::mark_reloaded() {
  fail(NXD_ERROR_INVALID_STATE, "nxd_ddp_mark_reloaded: ", kForBuffers);
}

void DataParallel::set_placements(const nxd_placement_t*, const int32_t*, const int32_t*, size_t) {
  fail(NXD_ERROR_INVALID_STATE, "nxd_ddp_set_placements: ", kForBuffers);
}

void DataParallel::set_shards(const std::vector<ShardOptions>&, const Outcome&, const int32_t*,
                              const int32_t*, size_t) {
  fail(NXD_ERROR_INVALID_STATE, "nxd_ddp_set_shards: ", kForBuffers);
}

uint64_t DataParallel::buffer_bytes() const {
  return reducer_->buffer_bytes() + (gather_ ? gather_->buffer_bytes() : 0);
}

void DataParallel::agree_on_options(ProcessGroup& group, const DataParallelOptions& options,
                                    Proposal proposal) {
  proposal.attempt([&] { check_options(options); })
      .same("bucket_bytes", static_cast<double>(options.bucket_bytes))
      .same("reduce", options.reduce)
      .same("zero_stage", options.zero_stage)
      .same("fp32_grads", options.fp32_grads)
      .same("overlap", options.overlap)
      .same("broadcast", options.broadcast);
  agree({&group}, proposal);
}

void DataParallel::make_parts(const DataParallelOptions& options, bool gradient_views,
                              bool value_views) {
  agree_on_parameters(*source_, *source_->groups().data);
  GradientReducer::Options of_reducer;
  of_reducer.bucket_bytes = options.bucket_bytes;
  of_reducer.reduce = options.reduce;
  of_reducer.scatter = options.zero_stage == 1;
  of_reducer.overlap = options.overlap;
  of_reducer.bucket_views = gradient_views;
  // They take memory as large as the gradients, and as the values.
  const auto make_together = [&](const std::function<void()>& make) {
    const OptimizerGroups& groups = source_->groups();
    agree({groups.data.get()}, Proposal(groups.world_rank).attempt(make));
  };
  make_together([&] { reducer_ = std::make_shared<GradientReducer>(source_, of_reducer); });
  if (options.zero_stage != 1) return;
  make_together(
      [&] { gather_ = std::make_shared<ParameterGather>(source_, reducer_->plan(), value_views); });
}

void DataParallel::broadcast_values(const DataParallelOptions& options) {
  if (options.broadcast) nxd::broadcast_values(*source_, *source_->groups().data);
}

double finish(DataParallel& ddp, const FinishOptions& options) {
  ParameterSource& source = *ddp.source();
  source.check_usable();
  if (!ddp.reducer()->options().scatter) return finish_in_place(source, *ddp.reducer(), options);
  // Peers may have a ddp of another stage, or come to the agreement with a step. They hear of
  // arguments that were rejected, after which a step stays open.
  FinishOptions rejected;
  rejected.given =
      Outcome::of(source.groups().world_rank, [] { check_argument(false, kForStage0); });
  try {
    return finish_in_place(source, *ddp.reducer(), rejected);
  } catch (const Error& error) {
    check_state(error.status() != NXD_ERROR_INVALID_ARGUMENT, kForStage0);
    throw;
  }
}

}  // namespace nxd
