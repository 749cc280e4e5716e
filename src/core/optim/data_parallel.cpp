#include "core/optim/data_parallel.h"

#include <vector>

#include "core/base/hash.h"
#include "core/optim/gradient_finish.h"
#include "core/optim/value_broadcast.h"

namespace nxd {
namespace {

const char* const kForBuffers =
    "for parameters that are a caller's buffers; a module's ddp sees its gradients itself";

// An error in the options; "" for none.
std::string complaint(const nxd_ddp_options_t& options) {
  if (options.bucket_bytes < 0) {
    return text("bucket_bytes: expected at least 0, got ", options.bucket_bytes);
  }
  if (options.reduce != NXD_REDUCE_SUM && options.reduce != NXD_REDUCE_AVG) {
    return text("reduce: expected NXD_REDUCE_SUM or NXD_REDUCE_AVG, got ", options.reduce);
  }
  const std::pair<const char*, int32_t> toggles[] = {{"zero_stage", options.zero_stage},
                                                     {"fp32_grads", options.fp32_grads}};
  for (const auto& [name, value] : toggles) {
    if (value != 0 && value != 1) return text(name, ": expected 0 or 1, got ", value);
  }
  for (const auto& [name, value] :
       {std::pair{"overlap", options.overlap}, std::pair{"broadcast", options.broadcast}}) {
    if (value < NXD_TOGGLE_DEFAULT || value > NXD_TOGGLE_OFF) {
      return text(name, ": expected an NXD_TOGGLE_*, got ", value);
    }
  }
  return "";
}

// The digest of a name, as a number that a double holds.
double digest(const std::string& name) { return Hash().add(name).folded(); }

void agree_on_parameters(const ParameterSource& source, ProcessGroup& group) {
  const int rank = source.groups().world_rank;
  agree({&group}, Proposal(rank).same("number of parameters", static_cast<double>(source.size())));
  Proposal proposal(rank);
  for (size_t i = 0; i < source.size(); ++i) {
    const ParameterInfo& info = source.info(i);
    const std::string of = text(" of parameter ", i, " (", info.name, ")");
    proposal.same("digest of the name" + of, digest(info.name))
        .same("elements" + of, static_cast<double>(info.count()))
        .same("dtype" + of, info.dtype)
        .same("dtype of the gradient" + of, info.grad_dtype);
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

uint64_t DataParallel::buffer_bytes() const {
  return reducer_->buffer_bytes() + (gather_ ? gather_->buffer_bytes() : 0);
}

void DataParallel::agree_on_options(ProcessGroup& group, const nxd_ddp_options_t& options,
                                    Proposal proposal) {
  proposal.reject(NXD_ERROR_INVALID_ARGUMENT, complaint(options))
      .same("bucket_bytes", static_cast<double>(options.bucket_bytes))
      .same("reduce", options.reduce)
      .same("zero_stage", options.zero_stage)
      .same("fp32_grads", options.fp32_grads)
      .same("overlap", options.overlap != NXD_TOGGLE_OFF)
      .same("broadcast", options.broadcast != NXD_TOGGLE_OFF);
  agree({&group}, proposal);
}

void DataParallel::make_parts(const nxd_ddp_options_t& options, bool resident) {
  agree_on_parameters(*source_, *source_->groups().data);
  GradientReducer::Options of_reducer;
  if (options.bucket_bytes > 0) of_reducer.bucket_bytes = options.bucket_bytes;
  of_reducer.reduce = options.reduce;
  of_reducer.scatter = options.zero_stage == 1;
  of_reducer.overlap = options.overlap != NXD_TOGGLE_OFF;
  of_reducer.resident = resident;
  reducer_ = std::make_shared<GradientReducer>(source_, of_reducer);
  if (options.zero_stage == 1) {
    gather_ = std::make_shared<ParameterGather>(source_, reducer_->plan(), resident);
  }
}

void DataParallel::broadcast_values(const nxd_ddp_options_t& options) {
  if (options.broadcast != NXD_TOGGLE_OFF) nxd::broadcast_values(*source_, *source_->groups().data);
}

double finish(DataParallel& ddp, const nxd_finish_options_t& options) {
  ParameterSource& source = *ddp.source();
  source.check_usable();
  check_state(!ddp.reducer()->options().scatter,
              "ddp: with zero_stage 1 each rank has a part of the gradients; nxd_optimizer_step "
              "finishes and uses them");
  return finish_in_place(source, *ddp.reducer(), options);
}

}  // namespace nxd
