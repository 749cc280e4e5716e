// nxd/optimizer.h: optimizers.
#include <optional>

#include "capi/arguments.h"
#include "capi/checkpoint_handles.h"
#include "capi/optimizer_handles.h"
#include "capi/optimizer_options.h"
#include "core/base/last_error.h"

using namespace nxd;

namespace {

Optimizer& unwrap(nxd_optimizer_t* optimizer) {
  check_argument(optimizer, "optimizer: expected an optimizer, got NULL");
  return *optimizer->value;
}

// For calls that come to a rule of the caller's, which may destroy the handle.
nxd_optimizer hold(nxd_optimizer_t* optimizer) {
  unwrap(optimizer);
  return *optimizer;
}

template <class Options>
nxd_status_t init(Options* options, size_t size, const Options& defaults) {
  return guard([&] { init_options(options, size, defaults, "options"); });
}

std::vector<std::string> read_patterns(const char* const* patterns, size_t n) {
  check_array(patterns, n, "patterns");
  std::vector<std::string> result;
  for (size_t i = 0; i < n; ++i) {
    check_argument(patterns[i], "patterns[", i, "]: expected a name or pattern, got NULL");
    result.emplace_back(patterns[i]);
  }
  return result;
}

}  // namespace

nxd_status_t nxd_lr_schedule_options_init(nxd_lr_schedule_options_t* options, size_t size) {
  return init(options, size, kScheduleDefaults);
}

nxd_status_t nxd_lr_schedule_get_factor(const nxd_lr_schedule_options_t* options, int64_t step,
                                        double* out_factor) {
  return guard([&] {
    auto& out = output(out_factor, "out_factor");
    const LearningRateSchedule known = read_schedule(options);
    check_schedule(known);
    out = schedule_factor(known, step);
  });
}

nxd_status_t nxd_adamw_options_init(nxd_adamw_options_t* options, size_t size) {
  return init(options, size, kAdamwDefaults);
}

nxd_status_t nxd_sgd_options_init(nxd_sgd_options_t* options, size_t size) {
  return init(options, size, kSgdDefaults);
}

nxd_status_t nxd_custom_optimizer_options_init(nxd_custom_optimizer_options_t* options,
                                               size_t size) {
  return init(options, size, kCustomDefaults);
}

nxd_status_t nxd_optimizer_create_adamw_ddp(nxd_ddp_t* ddp, const nxd_adamw_options_t* options,
                                            nxd_optimizer_t** out_optimizer) {
  return guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const nxd_ddp_t& self = unwrap(ddp);
    out = new_optimizer(self.owner, self.value, make_adamw_rule(read_adamw(options)));
  });
}

nxd_status_t nxd_optimizer_create_sgd_ddp(nxd_ddp_t* ddp, const nxd_sgd_options_t* options,
                                          nxd_optimizer_t** out_optimizer) {
  return guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const nxd_ddp_t& self = unwrap(ddp);
    out = new_optimizer(self.owner, self.value, make_sgd_rule(read_sgd(options)));
  });
}

nxd_status_t nxd_optimizer_create_custom_ddp(nxd_ddp_t* ddp,
                                             const nxd_custom_optimizer_options_t* options,
                                             nxd_optimizer_t** out_optimizer) {
  return guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const nxd_ddp_t& self = unwrap(ddp);
    out = new_custom_optimizer(self.owner, self.value, options);
  });
}

nxd_status_t nxd_optimizer_add_group(nxd_optimizer_t* optimizer, const char* const* patterns,
                                     size_t num_patterns, int32_t* out_group) {
  return guard([&] {
    if (out_group) *out_group = 0;
    const int group = unwrap(optimizer).add_group(read_patterns(patterns, num_patterns));
    if (out_group) *out_group = group;
  });
}

nxd_status_t nxd_optimizer_set_hyperparameter(nxd_optimizer_t* optimizer, int32_t group,
                                              nxd_hyperparameter_t which, double value) {
  return guard([&] { unwrap(optimizer).set_hyperparameter(group, which, value); });
}

nxd_status_t nxd_optimizer_get_hyperparameter(nxd_optimizer_t* optimizer, int32_t group,
                                              nxd_hyperparameter_t which, double* out_value) {
  return guard([&] {
    auto& out = output(out_value, "out_value");
    out = unwrap(optimizer).hyperparameter(group, which);
  });
}

nxd_status_t nxd_optimizer_set_lr_schedule(nxd_optimizer_t* optimizer,
                                           const nxd_lr_schedule_options_t* options) {
  return guard([&] { unwrap(optimizer).set_schedule(read_schedule(options)); });
}

nxd_status_t nxd_optimizer_step(nxd_optimizer_t* optimizer, const nxd_finish_options_t* options,
                                nxd_step_report_t* out_report) {
  return guard([&] {
    // A report that cannot be written is told to the other ranks, as options that cannot be read.
    std::optional<OutputStructs<nxd_step_report_t>> out;
    const FinishOptions finish =
        read_finish(options, [&] { out.emplace(out_report, size_t{1}, "out_report"); });
    nxd_step_report_t report{};
    hold(optimizer).value->step(finish, out_report ? &report : nullptr);
    out->write(0, report);
  });
}

nxd_status_t nxd_optimizer_update(nxd_optimizer_t* optimizer) {
  return guard([&] { hold(optimizer).value->update(); });
}

nxd_status_t nxd_optimizer_get_parameter_state(nxd_optimizer_t* optimizer,
                                               nxd_parameter_state_t* out_state,
                                               int64_t* out_step) {
  return guard([&] {
    clear_each(out_state, out_step);
    auto& state = output(out_state, "out_state");
    const StepOutcome outcome = unwrap(optimizer).outcome();
    state = outcome.parameters;
    if (out_step) *out_step = outcome.step;
  });
}

nxd_status_t nxd_optimizer_set_learning_rate(nxd_optimizer_t* optimizer, double rate) {
  return guard(
      [&] { unwrap(optimizer).set_hyperparameter(-1, NXD_HYPERPARAMETER_LEARNING_RATE, rate); });
}

nxd_status_t nxd_optimizer_get_learning_rate(nxd_optimizer_t* optimizer, double* out_rate) {
  return guard([&] {
    auto& out = output(out_rate, "out_rate");
    out = unwrap(optimizer).learning_rate(0);
  });
}

nxd_status_t nxd_optimizer_get_state_bytes(nxd_optimizer_t* optimizer, uint64_t* out_bytes) {
  return guard([&] {
    auto& out = output(out_bytes, "out_bytes");
    out = unwrap(optimizer).state_bytes();
  });
}

nxd_status_t nxd_optimizer_save(nxd_optimizer_t* optimizer, const char* path) {
  // Ranks that were given no path are rejected together with the others.
  return guard([&] { unwrap(optimizer).save(path); });
}

nxd_status_t nxd_optimizer_snapshot(nxd_optimizer_t* optimizer, nxd_checkpoint_t* checkpoint,
                                    const char* name) {
  return guard([&] {
    add_snapshot(checkpoint, name,
                 [&](Context& context) { return unwrap(optimizer).snapshot(context); });
  });
}

nxd_status_t nxd_optimizer_load(nxd_optimizer_t* optimizer, const char* path) {
  return guard([&] {
    Optimizer& self = unwrap(optimizer);
    self.load(&required(path, "path"));
  });
}

void nxd_optimizer_destroy(nxd_optimizer_t* optimizer) {
  const Uncancelled whole_call;
  delete optimizer;
}
