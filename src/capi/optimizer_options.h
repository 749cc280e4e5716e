#pragma once

// Options of ddps and optimizers, over parameters of either library, as C++ values.
#include "capi/arguments.h"
#include "capi/options.h"
#include "core/agree/outcome.h"
#include "core/optim/data_parallel.h"
#include "core/optim/gradient_finish.h"
#include "core/optim/learning_rate.h"
#include "core/optim/update_rule.h"

namespace nxd {

inline const nxd_ddp_options_t kDdpDefaults = NXD_DDP_OPTIONS_INIT;
inline const nxd_finish_options_t kFinishDefaults = NXD_FINISH_OPTIONS_INIT;
inline const nxd_lr_schedule_options_t kScheduleDefaults = NXD_LR_SCHEDULE_OPTIONS_INIT;
inline const nxd_adamw_options_t kAdamwDefaults = NXD_ADAMW_OPTIONS_INIT;
inline const nxd_sgd_options_t kSgdDefaults = NXD_SGD_OPTIONS_INIT;
inline const nxd_custom_optimizer_options_t kCustomDefaults = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;

// A number of a caller's, of which 0 means the default.
template <class Number>
void set_unless_zero(Number& value, Number given) {
  if (given != 0) value = given;
}

inline DataParallelOptions resolve(const nxd_ddp_options_t& given) {
  DataParallelOptions out;
  set_unless_zero(out.bucket_bytes, given.bucket_bytes);
  out.reduce = given.reduce;
  out.zero_stage = given.zero_stage;
  out.fp32_grads = flag(given.fp32_grads, "fp32_grads");
  out.overlap = toggle(given.overlap, out.overlap, "overlap");
  out.broadcast = toggle(given.broadcast, out.broadcast, "broadcast");
  return out;
}

// Options of a ddp and a place for it, or why this rank has none, which all ranks of its group are
// to hear.
struct ResolvedDdpOptions {
  DataParallelOptions value;
  Outcome outcome;

  ResolvedDdpOptions(const nxd_ddp_options_t* options, nxd_ddp_t** out_ddp, int rank)
      : outcome(Outcome::of(rank, [&] {
          output(out_ddp, "out_ddp");
          value = resolve(read_options(options, kDdpDefaults, "options"));
        })) {}
};

inline FinishOptions resolve(const nxd_finish_options_t& given) {
  FinishOptions out;
  set_unless_zero(out.scale, given.scale);
  out.max_norm = given.max_norm;
  set_unless_zero(out.norm_type, given.norm_type);
  out.reduce = given.data_parallel_reduce;
  out.check_finite = toggle(given.check_finite, out.check_finite, "check_finite");
  return out;
}

// Options, or why this rank has none, beside what else it was given, such as an output.
template <class ReadRest>
FinishOptions read_finish(const nxd_finish_options_t* options, const ReadRest& read_rest) {
  FinishOptions out;
  const Outcome given = Outcome::of(-1, [&] {
    read_rest();
    out = resolve(read_options(options, kFinishDefaults, "options"));
  });
  out.given = given;
  return out;
}
inline FinishOptions read_finish(const nxd_finish_options_t* options) {
  return read_finish(options, [] {});
}

inline LearningRateSchedule read_schedule(const nxd_lr_schedule_options_t* options) {
  const nxd_lr_schedule_options_t given = read_options(options, kScheduleDefaults, "options");
  return {given.kind, given.warmup_steps, given.total_steps, given.final_factor};
}

inline AdamwOptions read_adamw(const nxd_adamw_options_t* options) {
  const nxd_adamw_options_t given = read_options(options, kAdamwDefaults, "options");
  AdamwOptions out;
  set_unless_zero(out.learning_rate, given.learning_rate);
  set_unless_zero(out.beta1, given.beta1);
  set_unless_zero(out.beta2, given.beta2);
  set_unless_zero(out.eps, given.eps);
  out.weight_decay = given.weight_decay;
  out.formula = given.formula;
  out.bf16_update = given.bf16_update;
  return out;
}

inline SgdOptions read_sgd(const nxd_sgd_options_t* options) {
  const nxd_sgd_options_t given = read_options(options, kSgdDefaults, "options");
  SgdOptions out;
  set_unless_zero(out.learning_rate, given.learning_rate);
  out.momentum = given.momentum;
  out.dampening = given.dampening;
  out.weight_decay = given.weight_decay;
  out.nesterov = flag(given.nesterov, "nesterov");
  out.bf16_update = given.bf16_update;
  return out;
}

inline CallbackRuleOptions resolve(const nxd_custom_optimizer_options_t& given) {
  CallbackRuleOptions out;
  out.update = given.update;
  out.user_data = given.user_data;
  set_unless_zero(out.learning_rate, given.learning_rate);
  out.weight_decay = given.weight_decay;
  out.num_states = given.num_states;
  out.bf16_update = given.bf16_update;
  return out;
}

}  // namespace nxd
