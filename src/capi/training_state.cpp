// nxd/training_state.h: all that a run goes on from.
#include "capi/training_state_handles.h"

#include "capi/checkpoint_handles.h"
#include "capi/data_handles.h"
#include "capi/handles.h"
#include "capi/optimizer_handles.h"
#include "core/base/last_error.h"

namespace nxd {
namespace {

// Arguments that are wrong on one rank fail all of them.
void save_training_state(nxd_training_state_t* state, const char* directory, int64_t step,
                         int32_t keep_last, bool background) {
  TrainingState& self = unwrap(state);
  const Outcome given =
      Outcome::of(self.context()->rank(), [&] { required(directory, "directory"); });
  self.save(directory ? directory : "", step, keep_last, background, given);
}

}  // namespace
}  // namespace nxd

using namespace nxd;

nxd_status_t nxd_training_state_create(nxd_context_t* ctx, nxd_training_state_t** out_state) {
  return guard([&] {
    auto& out = output(out_state, "out_state");
    Context& context = unwrap(ctx);
    context.check_usable();
    out = new nxd_training_state{std::make_unique<TrainingState>(context.shared_from_this())};
  });
}

nxd_status_t nxd_training_state_add_optimizer(nxd_training_state_t* state, const char* name,
                                              nxd_optimizer_t* optimizer) {
  return guard([&] {
    TrainingState& self = unwrap(state);
    check_argument(optimizer, "optimizer: expected an optimizer, got NULL");
    const nxd_optimizer kept = *optimizer;
    self.add_file(
        TrainingState::FileKind::kOptimizerState, &required(name, "name"),
        [kept](Context& context) { return kept.value->snapshot(context); },
        [kept](const std::string& path) { kept.value->load(path); });
  });
}

nxd_status_t nxd_training_state_add_data_loader(nxd_training_state_t* state, const char* name,
                                                nxd_data_loader_t* loader) {
  return guard([&] {
    TrainingState& self = unwrap(state);
    unwrap(loader);
    const std::shared_ptr<DataLoader> kept = loader->value;
    self.add_position(
        &required(name, "name"), [kept] { return kept->position(); },
        [kept](int64_t position) { kept->set_position(position); },
        [kept](int64_t position) { kept->check_settable(position); });
  });
}

nxd_status_t nxd_training_state_set_value(nxd_training_state_t* state, const char* key,
                                          const char* value) {
  return guard([&] { unwrap(state).set_value(&required(key, "key"), &required(value, "value")); });
}

nxd_status_t nxd_training_state_get_value(nxd_training_state_t* state, const char* key, char* buf,
                                          size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    const auto& values = unwrap(state).values();
    const auto found = values.find(&required(key, "key"));
    if (found != values.end()) copy_text(found->second, buf, cap, needed);
  });
}

nxd_status_t nxd_training_state_save(nxd_training_state_t* state, const char* directory,
                                     int64_t step, int32_t keep_last) {
  return guard([&] { save_training_state(state, directory, step, keep_last, false); });
}

nxd_status_t nxd_training_state_save_async(nxd_training_state_t* state, const char* directory,
                                           int64_t step, int32_t keep_last) {
  return guard([&] { save_training_state(state, directory, step, keep_last, true); });
}

nxd_status_t nxd_training_state_wait(nxd_training_state_t* state, int64_t timeout_ms) {
  return guard([&] { unwrap(state).wait(timeout_ms); });
}

nxd_status_t nxd_training_state_load_newest(nxd_training_state_t* state, const char* directory,
                                            int32_t verify, int64_t* out_step) {
  return guard([&] {
    if (out_step) *out_step = 0;
    TrainingState& self = unwrap(state);
    const Outcome given = Outcome::of(self.context()->rank(), [&] {
      output(out_step, "out_step");
      required(directory, "directory");
      flag(verify, "verify");
    });
    const auto step = self.load_newest(directory ? directory : "", verify == 1, given);
    *out_step = step.value_or(-1);
  });
}

nxd_status_t nxd_training_state_snapshot(nxd_training_state_t* state,
                                         nxd_checkpoint_t* checkpoint) {
  return guard([&] { unwrap(state).snapshot(unwrap(checkpoint)); });
}

nxd_status_t nxd_training_state_restore(nxd_training_state_t* state, nxd_checkpoint_t* checkpoint) {
  return guard([&] { unwrap(state).restore(unwrap(checkpoint)); });
}

// A save in the background is waited for. In a forked child the directory is the parent's.
void nxd_training_state_destroy(nxd_training_state_t* state) {
  const Uncancelled whole_call;
  if (state && !state->fork_guard.is_foreign()) delete state;
}
