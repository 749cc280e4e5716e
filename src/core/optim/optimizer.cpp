#include "core/optim/optimizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/name_pattern.h"
#include "core/base/suggestions.h"
#include "core/kernels/elementwise.h"
#include "core/optim/state_file.h"
#include "core/optim/state_snapshot.h"

namespace nxd {
namespace {

char* element(const void* data, int64_t index, nxd_dtype_t dtype) {
  return static_cast<char*>(const_cast<void*>(data)) +
         static_cast<size_t>(index) * dtype_size(dtype);
}

OptimizerState state_of(const DataParallel& ddp) {
  if (!ddp.gather()) return OptimizerState(*ddp.source());
  return {*ddp.source(), ddp.reducer()->plan(), ddp.reducer()->part()};
}

std::vector<std::string> names_of(const ParameterSource& source) {
  std::vector<std::string> names;
  for (size_t i = 0; i < source.size(); ++i) names.push_back(source.info(i).name);
  return names;
}

// Narrows a span of an update to some of its elements. Its states are put in storage.
UpdateSpan slice(const UpdateSpan& span, int64_t begin, int64_t count, size_t n_states,
                 nxd_dtype_t state_dtype, std::vector<void*>& states,
                 std::vector<void*>& peer_copies) {
  UpdateSpan part = span;
  part.begin += begin;
  part.count = count;
  part.param = element(span.param, begin, span.dtype);
  part.grad = element(span.grad, begin, span.grad_dtype);
  if (span.copy) part.copy = element(span.copy, begin, NXD_DTYPE_BF16);
  states.clear();
  for (size_t i = 0; i < n_states; ++i) {
    states.push_back(element(span.states[i], begin, state_dtype));
  }
  part.states = states.data();
  if (span.peer_copies) {
    peer_copies.clear();
    const nxd_dtype_t stored = span.copy ? NXD_DTYPE_BF16 : span.dtype;
    for (const void* peer_copy : *span.peer_copies)
      peer_copies.push_back(element(peer_copy, begin, stored));
    part.peer_copies = &peer_copies;
  }
  return part;
}

}  // namespace

Optimizer::Optimizer(std::shared_ptr<ParameterSource> source, std::unique_ptr<UpdateRule> rule)
    : source_(std::move(source)),
      rule_(std::move(rule)),
      settings_{{rule_->defaults()}, std::vector<int>(source_->size(), 0), {}},
      state_(std::make_shared<OptimizerState>(*source_)),
      seen_versions_(source_->size()) {}

Optimizer::Optimizer(std::shared_ptr<DataParallel> ddp, std::unique_ptr<UpdateRule> rule)
    : ddp_(std::move(ddp)),
      source_(ddp_->source()),
      reducer_(ddp_->reducer()),
      gather_(ddp_->gather()),
      rule_(std::move(rule)),
      settings_{{rule_->defaults()}, std::vector<int>(source_->size(), 0), {}},
      state_(std::make_shared<OptimizerState>(state_of(*ddp_))),
      seen_versions_(source_->size()) {}

int Optimizer::add_group(const std::vector<std::string>& patterns) {
  check_argument(!patterns.empty(), "num_patterns: expected at least 1 pattern, got 0");
  const std::vector<std::string> names = names_of(*source_);
  // A pattern for other stages' parameters matches none of these, and is no mistake.
  const auto of_model = source_->names_of_model();
  std::vector<int> taken = settings_.group_of;
  for (size_t p = 0; p < patterns.size(); ++p) {
    const auto matches = [&](const std::string& name) {
      return matches_pattern(patterns[p], name);
    };
    for (size_t i = 0; i < names.size(); ++i) {
      if (matches(names[i])) taken[i] = group_count();
    }
    check_argument(!of_model || std::any_of(of_model->begin(), of_model->end(), matches),
                   "patterns[", p, "]: \"", patterns[p], "\" matches none of ",
                   of_model ? of_model->size() : 0, " parameters",
                   Suggestions(patterns[p], of_model ? *of_model : names));
  }
  settings_.group_of = std::move(taken);
  settings_.groups.push_back(Hyperparameters(settings_.groups.front()));
  return group_count() - 1;
}

void Optimizer::check_group(int group, int first) const {
  check_argument(group >= first && group < group_count(), "group: expected ",
                 first == kAllGroups ? "-1 for all, or " : "", "0 to ", group_count() - 1, ", got ",
                 group);
}

void Optimizer::set_hyperparameter(int group, nxd_hyperparameter_t which, double value) {
  check_group(group, kAllGroups);
  rule_->check(which, value);
  for (int i = 0; i < group_count(); ++i) {
    if (group == kAllGroups || group == i) settings_.groups[static_cast<size_t>(i)][which] = value;
  }
}

double Optimizer::hyperparameter(int group, nxd_hyperparameter_t which) const {
  check_group(group);
  const Hyperparameters& hyper = settings_.groups[static_cast<size_t>(group)];
  check_argument(which >= 0 && which < Hyperparameters::kCount, "which: expected 0 to ",
                 Hyperparameters::kCount - 1, ", got ", which);
  rule_->check(which, hyper[which]);
  return hyper[which];
}

void Optimizer::set_schedule(const LearningRateSchedule& schedule) {
  check_schedule(schedule);
  settings_.schedule = schedule;
}

double Optimizer::learning_rate(int group) {
  settle_if_ended();  // a skipped step counted its update when it was recorded
  check_group(group);
  return settings_.groups[static_cast<size_t>(group)][NXD_HYPERPARAMETER_LEARNING_RATE] *
         schedule_factor(settings_.schedule, updates_);
}

std::optional<uint64_t> Optimizer::rounding_seed(const ParameterInfo& info,
                                                 const StepRecorder* records) const {
  if (info.dtype != NXD_DTYPE_BF16) return std::nullopt;
  if (rule_->bf16_update() == NXD_BF16_UPDATE_STOCHASTIC) return source_->seed();
  const bool by_device = rule_->bf16_update() == NXD_BF16_UPDATE_NEAREST && records;
  return by_device ? records->rounding_seed() : std::nullopt;
}

// With ZeRO-1 one rank rounds, and the others get what it has.
std::optional<uint64_t> Optimizer::seed_of_copies(const StepRecorder* records) const {
  std::optional<uint64_t> seed;
  for (size_t i = 0; i < source_->size() && !seed && !sharded(); ++i) {
    seed = rounding_seed(source_->info(i), records);
  }
  return seed;
}

GradientReducer::Options Optimizer::reduction_by(nxd_reduce_t reduce) const {
  if (ddp_) return reducer_->options();
  GradientReducer::Options options;
  options.reduce = reduce;
  options.overlap = false;
  return options;
}

GradientReducer& Optimizer::reducer_for(nxd_reduce_t reduce) {
  if (!ddp_ && (!reducer_ || reducer_->options().reduce != reduce)) {
    reducer_ = std::make_shared<GradientReducer>(source_, reduction_by(reduce));
  }
  return *reducer_;
}

// A rank that cannot make its reducer rejects the step. In another layout there is none to make.
FinishOptions Optimizer::with_reducer(const FinishOptions& options) {
  FinishOptions out = options;
  const bool is_known = options.reduce == NXD_REDUCE_SUM || options.reduce == NXD_REDUCE_AVG;
  if (!options.given.good() || !is_known || !source_->why_other_layout().empty()) return out;
  out.given = Outcome::of(source_->groups().world_rank, [&] { reducer_for(options.reduce); });
  return out;
}

void Optimizer::step(const FinishOptions& given, nxd_step_report_t* report) {
  settle();
  check_usable("nxd_optimizer_step");
  StepRecorder* records = recorder();
  const FinishOptions options = records ? given : with_reducer(given);
  GradientReducer* reducer = records ? nullptr : reducer_.get();
  const UpdatePlan plan{
      learning_rate(0),         updates_,
      settings_.digest(*rule_), why_partial(),
      seed_of_copies(records),  [&](const auto& used) { take_blocks(used, records); }};
  const GradientReducer::Options reduction = reduction_by(options.reduce);
  const auto agree = [&] { return agree_on_finish(*source_, reducer, options, reduction, plan); };
  if (!plan.why_partial.empty()) agree();
  outcome_ = {NXD_PARAMETER_STATE_OLD, source_->step()};
  nxd_step_report_t done{};
  done.learning_rate = learning_rate(0);
  const bool same_used_map = before_update(outcome_.step, agree);
  if (records && same_used_map) {
    record_step(options);
    if (report) {
      const GradientFactor end = settle();
      done.norm = end.norm;
      done.skipped = !end.finite && options.check_finite;
    }
  } else {
    const FinishedGradients finished =
        before_update(outcome_.step, [&] { return finish_gradients(options, same_used_map); });
    done.norm = finished.norm;
    done.skipped = !finished.finite && options.check_finite;
    if (!done.skipped) {
      if (sharded()) {
        update_parts(finished);
      } else {
        update_all(finished);
      }
      ++updates_;
      outcome_.parameters = NXD_PARAMETER_STATE_NEW;
    }
  }
  done.updates = updates_;
  if (report) *report = done;
  source_->advance_step();
}

FinishedGradients Optimizer::finish_gradients(const FinishOptions& options, bool same_used_map) {
  return finish(*source_, reducer_for(options.reduce), options, same_used_map);
}

void Optimizer::update() {
  settle_for_host();
  check_usable("nxd_optimizer_update");
  check_reduced_here();
  check_state(!sharded(),
              "the state is sharded (zero_stage 1): call nxd_optimizer_step on all ranks");
  const std::string partial = why_partial();
  check_state(partial.empty(), partial);
  check_state(!ddp_ || !reducer_->unfinished(),
              "ddp: gradients were marked in this step, or their reduction has failed, and are not "
              "reduced yet: call nxd_ddp_finish before, or nxd_optimizer_step instead");
  outcome_ = {NXD_PARAMETER_STATE_OLD, source_->step()};
  FinishedGradients finished;
  // A caller's buffers are there also where no rank has used their parameter.
  const std::vector<char>* const used = ddp_ ? &reducer_->used_by_update() : nullptr;
  for (size_t i = 0; i < source_->size(); ++i) {
    const bool is_used = !used || (*used)[i];
    finished.present.push_back(is_used && source_->buffers(i).grad ? 1 : 0);
  }
  update_all(finished);
  ++updates_;
  outcome_.parameters = NXD_PARAMETER_STATE_NEW;
  source_->advance_step();
}

// All memory that an update of these parameters takes; where it is recorded, all but masters, whose
// values may have to be computed first.
void Optimizer::take_blocks(const std::vector<char>& present, const StepRecorder* records) {
  if (!records && recorder_) recorder_->forget_states();
  if (!records) state_->make_own();
  for (OptimizerState::Span& span : state_->spans()) {
    if (!present[span.parameter]) continue;
    make_blocks(span, records ? nullptr : source_->buffers(span.parameter).value);
  }
}

void Optimizer::update_all(const FinishedGradients& finished) {
  const UpdateUnderWay::Scope update(under_way_);
  bool begun = false;
  try {
    take_blocks(finished.present, nullptr);
    for (OptimizerState::Span& span : state_->spans()) {
      if (!finished.present[span.parameter]) continue;
      update_span(span, finished.factor);
      begun = true;
      value_updated(span.parameter);
    }
  } catch (...) {
    break_off(finished.present, begun);
  }
}

void Optimizer::update_parts(const FinishedGradients& finished) {
  const UpdateUnderWay::Scope update(under_way_);
  bool begun = false, in_barrier = false;
  try {
    take_blocks(finished.present, nullptr);
    in_barrier = true;
    try {
      gather_->begin();
    } catch (const Error& error) {
      // Peers that pass the barrier may write to this rank's copies even if it does not learn of
      // it. None passes one that is rejected.
      begun = gather_->has_peer_copies() && error.status() != NXD_ERROR_INVALID_ARGUMENT;
      throw;
    }
    begun = gather_->has_peer_copies();
    in_barrier = false;
    for (OptimizerState::Span& span : state_->spans()) {
      if (!finished.present[span.parameter]) continue;
      update_span(span, finished.factor);
      begun = true;
    }
    in_barrier = true;
    // The peers' parts are written to this rank's parameters, bucket by bucket.
    begun = begun || has_elements(finished.present);
    gather_->gather();
  } catch (const std::exception& error) {
    if (!in_barrier) gather_->reject(error.what());
    break_off(finished.present, begun);
  }
  for (size_t i = 0; i < source_->size(); ++i) {
    if (finished.present[i] && source_->info(i).count() > 0) value_updated(i);
  }
}

// Another optimizer over the same source has masters too, which are stale by this.
void Optimizer::value_updated(size_t parameter) {
  source_->value_changed(parameter);
  seen_versions_[parameter] = source_->value_version(parameter);
}

bool Optimizer::has_elements(const std::vector<char>& present) const {
  for (size_t i = 0; i < present.size(); ++i) {
    if (present[i] && source_->info(i).count() > 0) return true;
  }
  return false;
}

void Optimizer::break_off(const std::vector<char>& updated, bool begun) {
  if (begun) mark_partial(updated);
  rethrow_with_parameters(outcome_.step, outcome_.parameters);
}

void Optimizer::mark_partial(const std::vector<char>& updated) {
  state_partial_ = true;
  outcome_.parameters = NXD_PARAMETER_STATE_PARTIAL;
  for (size_t i = 0; i < updated.size(); ++i) {
    if (updated[i] && source_->info(i).count() > 0) source_->mark_partial(i);
  }
}

std::string Optimizer::why_partial() const {
  const std::string values = source_->why_partial();
  if (!values.empty() || !state_partial_) return values;
  return text("expected an optimizer's state of one step, got a PARTIAL one: the end of step ",
              outcome_.step, " broke off; nxd_optimizer_load a state, or make another optimizer");
}

StepOutcome Optimizer::outcome() {
  settle_if_ended();
  const bool mended = outcome_.parameters == NXD_PARAMETER_STATE_PARTIAL && why_partial().empty();
  return mended ? StepOutcome{} : outcome_;
}

struct Optimizer::SpanUpdate {
  std::shared_ptr<UpdateRule> rule{};
  std::shared_ptr<OptimizerState> state{};
  Hyperparameters hyper{};
  UpdateSpan span{};  // without memory
  nxd_dtype_t state_dtype = NXD_DTYPE_F32;
  std::optional<RandomSite> site{};  // where values are rounded stochastically
  std::vector<OptimizerState::RandomSpan> random_spans{};

  void run(const UpdateMemory& memory) const {
    UpdateSpan update = span;
    update.param = memory.param;
    update.grad = memory.grad;
    update.states = memory.states;
    update.copy = memory.copy;
    update.grad_scale = memory.grad_scale;
    if (!site) return rule->update(update, hyper);
    std::vector<void*> part_states, part_copies;
    for (const OptimizerState::RandomSpan& random : random_spans) {
      const kernels::RoundingSource rounding{*site, random.first, random.cols, random.row_stride};
      UpdateSpan part = slice(update, random.begin, random.count, rule->states().size(),
                              state_dtype, part_states, part_copies);
      part.rounding = &rounding;
      rule->update(part, hyper);
    }
  }
};

Optimizer::SpanUpdate Optimizer::prepare(OptimizerState::Span& span, const StepRecorder* records) {
  const ParameterInfo& info = source_->info(span.parameter);
  SpanUpdate out;
  out.rule = rule_;
  out.state = state_;
  out.hyper = settings_.groups[static_cast<size_t>(settings_.group_of[span.parameter])];
  out.state_dtype = OptimizerState::state_dtype(info);
  out.span.name = &info.name;
  out.span.begin = span.begin;
  out.span.count = span.count;
  out.span.dtype = span.master ? NXD_DTYPE_F32 : info.dtype;
  out.span.grad_dtype = info.grad_dtype;
  out.span.learning_rate =
      out.hyper[NXD_HYPERPARAMETER_LEARNING_RATE] * schedule_factor(settings_.schedule, updates_);
  out.span.step = span.updates + 1;
  out.span.reference = source_->plain_kernels();
  if (const std::optional<uint64_t> seed = rounding_seed(info, records)) {
    out.site = RandomSite(*seed, info.name + ".rounding").at(source_->step(), 0);
    out.random_spans = OptimizerState::random_spans(span, info);
  }
  return out;
}

// True where its master is to be made of the parameter's value, for the first time or again. Until
// an update has ended well, whoever owns a value may write to it without a word.
bool Optimizer::copies_value(const OptimizerState::Span& span) const {
  const bool has_master = source_->info(span.parameter).dtype == NXD_DTYPE_BF16 &&
                          rule_->bf16_update() == NXD_BF16_UPDATE_MASTER;
  return has_master && (!span.master || span.updates == 0 ||
                        seen_versions_[span.parameter] != source_->value_version(span.parameter));
}

// The value may be null, which leaves the master as it is.
void Optimizer::make_blocks(OptimizerState::Span& span, const void* value) {
  const ParameterInfo& info = source_->info(span.parameter);
  OptimizerState::make_states(span, info, rule_->states().size());
  if (!value || !copies_value(span)) return;
  if (!span.master) span.master = OptimizerState::make_block(span, info);
  kernels::cast(info.dtype, element(value, span.begin, info.dtype), NXD_DTYPE_F32,
                span.master.get(), span.count);
}

void Optimizer::update_span(OptimizerState::Span& span, double factor) {
  const ParameterInfo& info = source_->info(span.parameter);
  const ParameterBuffers buffers = source_->buffers(span.parameter);
  SpanUpdate update = prepare(span, nullptr);
  std::vector<void*> states, peer_copies;
  for (const OptimizerState::Block& state : span.states) states.push_back(state.get());
  if (span.bucket >= 0) {
    for (const void* bucket : gather_->peer_copies(static_cast<size_t>(span.bucket))) {
      peer_copies.push_back(element(bucket, span.bucket_offset, info.dtype));
    }
  }
  update.span.peer_copies = peer_copies.empty() ? nullptr : &peer_copies;
  char* value = element(buffers.value, span.begin, info.dtype);
  UpdateMemory memory;
  memory.param = span.master ? span.master.get() : value;
  memory.grad = element(buffers.grad, span.begin, info.grad_dtype);
  memory.states = states.data();
  memory.copy = span.master ? value : nullptr;
  memory.grad_scale = factor;
  update.run(memory);
  ++span.updates;
}

void Optimizer::check_reduced_here() const {
  const std::string why = source_->why_reduced_elsewhere();
  check_state(why.empty(), why);
}

void Optimizer::check_known() const {
  const std::string why = source_->why_no_file();
  if (!why.empty()) fail(NXD_ERROR_UNSUPPORTED, why);
}

void Optimizer::save(const char* path) {
  settle_for_host();
  check_usable("nxd_optimizer_save");
  check_known();
  save_state(path, {*source_, *state_, *rule_, settings_, updates_, sharded()},
             [this] { prepare_to_save(); });
}

// A master of a value that was written from outside is made anew, as the next update would do:
// whoever loads a stale one would have the old value again.
void Optimizer::prepare_to_save() {
  check_reduced_here();
  const std::string other_layout = source_->why_other_layout();
  check_state(other_layout.empty(), other_layout);
  const std::string partial = why_partial();
  check_state(partial.empty(), partial);
  for (OptimizerState::Span& span : state_->spans()) {
    if (span.updates == 0 || !copies_value(span)) continue;
    if (span.master) span.master.make_own();
    make_blocks(span, source_->value(span.parameter));
  }
}

std::unique_ptr<Snapshot> Optimizer::snapshot(Context& context) {
  settle_for_host();
  check_usable("nxd_optimizer_snapshot");
  check_known();
  prepare_to_save();
  const StateView view(*source_, *state_, *rule_, settings_, updates_, sharded());
  auto snapshot = std::make_unique<StateSnapshot>(view, context);
  // A recorded step and a plug-in know the states by their addresses.
  if (recorder()) snapshot->make_own();
  return snapshot;
}

// A recorded step that has not run writes to the memory of the states that are replaced here, and
// its updates were counted.
void Optimizer::load(const std::string& path) {
  settle();
  check_usable("nxd_optimizer_load");
  check_reduced_here();
  if (recorder_) recorder_->forget_states();
  updates_ = load_state(path, *source_, *state_, *rule_, settings_);
  state_partial_ = false;
  // A copy that was read is no staler than the value it belongs to.
  for (size_t i = 0; i < source_->size(); ++i) seen_versions_[i] = source_->value_version(i);
}

}  // namespace nxd
