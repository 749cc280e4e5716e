// Steps of an Optimizer that join the recorded graph of a device.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/layout/random_rows.h"
#include "core/optim/optimizer.h"

namespace nxd {

StepRecorder* Optimizer::recorder() {
  if (!recorder_) recorder_ = source_->make_step_recorder();
  const bool has_form = rule_->form(UpdateSpan(), rule_->defaults()).has_value();
  return recorder_ && has_form && recorder_->can_record() ? recorder_.get() : nullptr;
}

// The host writes masters that are made anew, and a snapshot that was taken while the parameters
// were elsewhere shares the states' memory.
void Optimizer::prepare_to_record() {
  const std::vector<OptimizerState::Span>& spans = state_->spans();
  const bool is_written = std::any_of(spans.begin(), spans.end(), [&](const auto& span) {
    return span.master && copies_value(span);
  });
  if (is_written || state_->is_shared()) recorder_->forget_states();
  state_->make_own();
}

void Optimizer::record_step(const FinishOptions& options) {
  std::vector<char> present;
  for (size_t i = 0; i < source_->size(); ++i) present.push_back(source_->has_gradient(i) ? 1 : 0);
  const bool has_parts = sharded() && reducer_->plan().ranks() > 1;
  const BucketPlan* plan = has_parts ? &reducer_->plan() : nullptr;
  bool begun = false;
  try {
    prepare_to_record();
    for (OptimizerState::Span& span : state_->spans()) {
      if (!present[span.parameter]) continue;
      make_blocks(span, copies_value(span) ? recorder_->value(span.parameter) : nullptr);
    }
    recorder_->finish(options, present, plan);
    for (OptimizerState::Span& span : state_->spans()) {
      if (!present[span.parameter]) continue;
      record_span(span);
      begun = true;
    }
    if (plan) recorder_->gather();
    for (size_t i = 0; i < source_->size(); ++i) {
      if (present[i] && source_->info(i).count() > 0) value_updated(i);
    }
  } catch (...) {
    break_off(present, begun);
  }
  ++updates_;
  unsettled_ = std::move(present);
  unsettled_checks_ = options.check_finite;
  outcome_.parameters = NXD_PARAMETER_STATE_NEW;
}

// All ranks of a plan whose parts are alike have one code.
void Optimizer::add_rounding(const OptimizerState::Span& span, const RandomSite& site,
                             RecordedUpdate& update) const {
  constexpr int64_t kWordsOfBlock = 8;
  update.form.attributes += " stochastic";
  std::optional<RandomRows> rows = RandomRows::of(source_->info(span.parameter).shard);
  if (!rows) return;
  if (span.bucket >= 0) rows = rows->part(span.begin, span.room);
  update.form.attributes += ", " + rows->code(kWordsOfBlock);
  update.random = rows->numbers(site, kWordsOfBlock);
}

void Optimizer::record_span(OptimizerState::Span& span) {
  const auto prepared = std::make_shared<const SpanUpdate>(prepare(span, recorder_.get()));
  RecordedUpdate update;
  update.parameter = span.parameter;
  update.begin = span.begin;
  update.count = span.count;
  update.form = *rule_->form(prepared->span, prepared->hyper);
  if (prepared->site) add_rounding(span, *prepared->site, update);
  update.group = static_cast<size_t>(settings_.group_of[span.parameter]);
  update.step = prepared->span.step;
  update.state_dtype = prepared->state_dtype;
  for (const OptimizerState::Block& state : span.states) update.states.push_back(state.get());
  update.master = span.master.get();
  update.owner = state_;
  update.run = [prepared](const UpdateMemory& memory) { prepared->run(memory); };
  recorder_->update(std::move(update));
  ++span.updates;
}

// The step's updates were counted when it was recorded.
void Optimizer::take_back(const std::vector<char>& updated) {
  --updates_;
  for (OptimizerState::Span& span : state_->spans()) {
    if (updated[span.parameter]) --span.updates;
  }
  outcome_.parameters = NXD_PARAMETER_STATE_OLD;
}

GradientFactor Optimizer::settle() {
  if (unsettled_.empty()) return {};
  const std::vector<char> updated = std::exchange(unsettled_, {});
  const bool had_ended = recorder_->has_ended();
  try {
    const GradientFactor end = recorder_->end();
    if (!end.finite && unsettled_checks_) take_back(updated);
    return end;
  } catch (...) {
    take_back(updated);
    if (recorder_->has_lost_values()) mark_partial(updated);
    if (had_ended) return {};  // whoever ran the graph has had the error
    rethrow_with_parameters(outcome_.step, outcome_.parameters);
  }
}

// Then the states' memory is the host's, until the next step is recorded.
void Optimizer::settle_for_host() {
  settle();
  if (recorder_) recorder_->forget_states();
}

void Optimizer::settle_if_ended() {
  if (!unsettled_.empty() && recorder_->has_ended()) settle();
}

}  // namespace nxd
