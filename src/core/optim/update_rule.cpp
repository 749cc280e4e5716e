#include "core/optim/update_rule.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/dtype.h"
#include "core/base/last_error.h"
#include "core/base/profiler.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/optimizer_kernels.h"

namespace nxd {
namespace {

// A hyperparameter's name and range, by nxd_hyperparameter_t.
struct Kind {
  const char* name;
  const char* range;
  bool (*holds)(double value);
};

bool is_rate(double value) { return std::isfinite(value) && value >= 0; }
bool is_decay_factor(double value) { return value >= 0 && value < 1; }
bool is_share(double value) { return value >= 0 && value <= 1; }

constexpr Kind kKinds[Hyperparameters::kCount] = {
    {"learning_rate", "a finite number of at least 0", is_rate},
    {"weight_decay", "a finite number of at least 0", is_rate},
    {"beta1", "a number of [0, 1)", is_decay_factor},
    {"beta2", "a number of [0, 1)", is_decay_factor},
    {"eps", "a finite number of at least 0", is_rate},
    {"momentum", "a number of [0, 1)", is_decay_factor},
    {"dampening", "a number of [0, 1]", is_share}};

// Kernels of f32 and bf16 parameters take hyperparameters as F32.
void check_f32(nxd_hyperparameter_t which, const char* name, double value) {
  using Limits = std::numeric_limits<float>;
  check_argument(value <= Limits::max(), name, ": expected a number that f32 has, at most ",
                 Limits::max(), ", got ", value);
  // Rounded to 0 it would no longer keep a quotient finite.
  const bool vanishes = value != 0 && static_cast<float>(value) == 0;
  check_argument(which != NXD_HYPERPARAMETER_EPS || !vanishes, name,
                 ": expected 0 or a number that f32 has, at least ", Limits::denorm_min(), ", got ",
                 value);
}

// The base of rules: which hyperparameters and states there are.
class KnownRule : public UpdateRule {
 public:
  const char* kind() const override { return kind_; }
  const std::vector<std::string>& states() const override { return states_; }
  nxd_bf16_update_t bf16_update() const override { return bf16_update_; }
  const Hyperparameters& defaults() const override { return defaults_; }

  bool has(nxd_hyperparameter_t which) const override {
    return std::find(own_.begin(), own_.end(), which) != own_.end();
  }

  void check(nxd_hyperparameter_t which, double value) const override {
    check_argument(which >= 0 && which < Hyperparameters::kCount,
                   "hyperparameter: expected one of nxd_hyperparameter_t, got ", which);
    const auto& kind = kKinds[static_cast<size_t>(which)];
    check_argument(has(which), "hyperparameter: expected one of ", kind_, "'s, which are ",
                   own_names(), ", got ", kind.name);
    check_argument(kind.holds(value), kind.name, ": expected ", kind.range, ", got ", value);
    check_f32(which, kind.name, value);
  }

 protected:
  KnownRule(const char* kind, std::vector<std::string> states, nxd_bf16_update_t bf16_update)
      : kind_(kind), states_(std::move(states)), bf16_update_(bf16_update) {
    check_argument(
        bf16_update == NXD_BF16_UPDATE_MASTER || bf16_update == NXD_BF16_UPDATE_STOCHASTIC ||
            bf16_update == NXD_BF16_UPDATE_NEAREST,
        "bf16_update: expected NXD_BF16_UPDATE_MASTER, _STOCHASTIC or _NEAREST, got ", bf16_update);
  }

  // Gives the rule a hyperparameter, with the value that groups start from.
  void have(nxd_hyperparameter_t which, double value) {
    own_.push_back(which);
    check(which, value);
    defaults_[which] = value;
  }

 private:
  std::string own_names() const {
    std::string names;
    for (const nxd_hyperparameter_t which : own_) {
      names += (names.empty() ? "" : ", ") + std::string(kKinds[static_cast<size_t>(which)].name);
    }
    return names;
  }

  const char* kind_;
  std::vector<std::string> states_;
  nxd_bf16_update_t bf16_update_;
  std::vector<nxd_hyperparameter_t> own_;
  Hyperparameters defaults_;
};

// The arguments that the kernels of all rules take alike.
template <class Args>
Args arguments_of(const UpdateSpan& span) {
  Args args;
  args.n = span.count;
  args.dtype = span.dtype;
  args.grad_dtype = span.grad_dtype;
  args.param = span.param;
  args.grad = span.grad;
  args.copy = span.copy;
  args.peer_copies = span.peer_copies;
  args.lr = span.learning_rate;
  args.grad_scale = span.grad_scale;
  args.rounding = span.rounding;
  args.reference = span.reference;
  return args;
}

class AdamwRule final : public KnownRule {
 public:
  explicit AdamwRule(const AdamwOptions& options)
      : KnownRule("adamw", {"exp_avg", "exp_avg_sq"}, options.bf16_update),
        formula_(options.formula) {
    check_argument(formula_ == NXD_ADAMW_FORMULA_TORCH || formula_ == NXD_ADAMW_FORMULA_NXD,
                   "formula: expected NXD_ADAMW_FORMULA_TORCH or _NXD, got ", formula_);
    have(NXD_HYPERPARAMETER_LEARNING_RATE, options.learning_rate);
    have(NXD_HYPERPARAMETER_WEIGHT_DECAY, options.weight_decay);
    have(NXD_HYPERPARAMETER_BETA1, options.beta1);
    have(NXD_HYPERPARAMETER_BETA2, options.beta2);
    have(NXD_HYPERPARAMETER_EPS, options.eps);
  }

  void update(const UpdateSpan& span, const Hyperparameters& hyper) const override {
    kernels::adamw(arguments(span, hyper));
  }

  // beta1, 1 - beta1, beta2, 1 - beta2, eps; decay, rate and root of kernels::AdamwTerms
  std::optional<UpdateForm> form(const UpdateSpan& span,
                                 const Hyperparameters& hyper) const override {
    const kernels::AdamwArgs args = arguments(span, hyper);
    const kernels::AdamwTerms terms = kernels::adamw_terms(args);
    return UpdateForm{"nxd::adamw",
                      "",
                      {args.beta1, 1 - args.beta1, args.beta2, 1 - args.beta2, args.eps,
                       terms.decay, terms.rate, terms.root}};
  }

 private:
  kernels::AdamwArgs arguments(const UpdateSpan& span, const Hyperparameters& hyper) const {
    auto args = arguments_of<kernels::AdamwArgs>(span);
    args.exp_avg = span.states ? span.states[0] : nullptr;
    args.exp_avg_sq = span.states ? span.states[1] : nullptr;
    args.formula = formula_;
    args.beta1 = hyper[NXD_HYPERPARAMETER_BETA1];
    args.beta2 = hyper[NXD_HYPERPARAMETER_BETA2];
    args.eps = hyper[NXD_HYPERPARAMETER_EPS];
    args.weight_decay = hyper[NXD_HYPERPARAMETER_WEIGHT_DECAY];
    args.step = span.step;
    return args;
  }

  nxd_adamw_formula_t formula_;
};

// The momentum's state is there when the rule starts with a momentum.
class SgdRule final : public KnownRule {
 public:
  explicit SgdRule(const SgdOptions& options)
      : KnownRule("sgd", states_of(options), options.bf16_update), nesterov_(options.nesterov) {
    have(NXD_HYPERPARAMETER_LEARNING_RATE, options.learning_rate);
    have(NXD_HYPERPARAMETER_WEIGHT_DECAY, options.weight_decay);
    have(NXD_HYPERPARAMETER_MOMENTUM, options.momentum);
    have(NXD_HYPERPARAMETER_DAMPENING, options.dampening);
  }

  void check(nxd_hyperparameter_t which, double value) const override {
    KnownRule::check(which, value);
    if (which == NXD_HYPERPARAMETER_MOMENTUM) {
      check_argument(!nesterov_ || value > 0, "momentum: expected more than 0 with nesterov, got ",
                     value);
      check_argument(!states().empty() || value == 0,
                     "momentum: expected 0 of an optimizer that was made without, got ", value);
    }
    check_argument(!nesterov_ || which != NXD_HYPERPARAMETER_DAMPENING || value == 0,
                   "dampening: expected 0 with nesterov, got ", value);
  }

  void update(const UpdateSpan& span, const Hyperparameters& hyper) const override {
    auto args = arguments_of<kernels::SgdArgs>(span);
    args.momentum = hyper[NXD_HYPERPARAMETER_MOMENTUM];
    args.momentum_buffer = args.momentum != 0 ? span.states[0] : nullptr;
    args.dampening = hyper[NXD_HYPERPARAMETER_DAMPENING];
    args.weight_decay = hyper[NXD_HYPERPARAMETER_WEIGHT_DECAY];
    args.nesterov = nesterov_;
    args.first_step = span.step == 1;
    kernels::sgd(args);
  }

  // The learning rate, momentum, 1 - dampening, weight decay, and whether it is the first step.
  std::optional<UpdateForm> form(const UpdateSpan& span,
                                 const Hyperparameters& hyper) const override {
    const double momentum = hyper[NXD_HYPERPARAMETER_MOMENTUM];
    const char* how = momentum == 0 ? "plain" : nesterov_ ? "nesterov" : "momentum";
    return UpdateForm{"nxd::sgd",
                      how,
                      {span.learning_rate, momentum, 1 - hyper[NXD_HYPERPARAMETER_DAMPENING],
                       hyper[NXD_HYPERPARAMETER_WEIGHT_DECAY], span.step == 1 ? 1.0 : 0.0}};
  }

 private:
  static std::vector<std::string> states_of(const SgdOptions& options) {
    if (options.momentum == 0) return {};
    return {"momentum"};
  }

  bool nesterov_;
};

class CallbackRule final : public KnownRule {
 public:
  explicit CallbackRule(const CallbackRuleOptions& options)
      : KnownRule("custom", states_of(options), options.bf16_update),
        callback_(options.update),
        user_data_(options.user_data) {
    check_argument(callback_, "update: expected a callback, got NULL");
    check_argument(options.bf16_update != NXD_BF16_UPDATE_STOCHASTIC,
                   "bf16_update: expected NXD_BF16_UPDATE_MASTER or _NEAREST of a caller's own "
                   "rule, got NXD_BF16_UPDATE_STOCHASTIC");
    have(NXD_HYPERPARAMETER_LEARNING_RATE, options.learning_rate);
    have(NXD_HYPERPARAMETER_WEIGHT_DECAY, options.weight_decay);
  }

  void update(const UpdateSpan& span, const Hyperparameters& hyper) const override {
    const PhaseScope phase(NXD_PHASE_OPTIMIZER);
    nxd_update_t update{};
    update.struct_size = sizeof update;
    update.parameter = span.name->c_str();
    update.begin = span.begin;
    update.count = span.count;
    update.dtype = span.dtype;
    update.grad_dtype = span.grad_dtype;
    update.param = span.param;
    update.grad = span.grad;
    update.grad_scale = span.grad_scale;
    update.states = span.states;
    update.learning_rate = span.learning_rate;
    update.weight_decay = hyper[NXD_HYPERPARAMETER_WEIGHT_DECAY];
    update.step = span.step;
    CallbackWatch().run([&] { return callback_(&update, user_data_); },
                        text("update of ", *span.name).c_str());
    pass_on(span);
  }

  std::optional<UpdateForm> form(const UpdateSpan&, const Hyperparameters&) const override {
    return std::nullopt;
  }

 private:
  // Stores what the kernels of other rules store in their own pass.
  static void pass_on(const UpdateSpan& span) {
    const void* value = span.param;
    nxd_dtype_t dtype = span.dtype;
    if (span.copy) {
      kernels::cast(span.dtype, span.param, NXD_DTYPE_BF16, span.copy, span.count);
      value = span.copy;
      dtype = NXD_DTYPE_BF16;
    }
    if (!span.peer_copies) return;
    const size_t bytes = static_cast<size_t>(span.count) * dtype_size(dtype);
    for (void* peer_copy : *span.peer_copies) std::memcpy(peer_copy, value, bytes);
  }

  static std::vector<std::string> states_of(const CallbackRuleOptions& options) {
    constexpr int kMaxStates = 8;
    check_argument(options.num_states >= 0 && options.num_states <= kMaxStates,
                   "num_states: expected 0 to ", kMaxStates, ", got ", options.num_states);
    std::vector<std::string> names;
    for (int i = 0; i < options.num_states; ++i) names.push_back(text("state", i));
    return names;
  }

  nxd_update_fn callback_;
  void* user_data_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw_rule(const AdamwOptions& options) {
  return std::make_unique<AdamwRule>(options);
}

std::unique_ptr<UpdateRule> make_sgd_rule(const SgdOptions& options) {
  return std::make_unique<SgdRule>(options);
}

std::unique_ptr<UpdateRule> make_callback_rule(const CallbackRuleOptions& options) {
  return std::make_unique<CallbackRule>(options);
}

}  // namespace nxd
