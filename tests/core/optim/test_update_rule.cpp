// Update rules: their hyperparameters and states, values of torch and NxD Core, callers' own rules,
// and what is no rule.
#include "core/optim/update_rule.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/kernels/bf16.h"
// After what defines nxd::fail.
#include "support/check.h"

using namespace nxd;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Function>
void refused(const Function& function, const char* part) {
  try {
    function();
  } catch (const Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.what(), part)) fail_msg("expected \"%s\", got: %s", part, error.what());
    return;
  }
  fail_msg("not refused: expected \"%s\"", part);
}

nxd_status_t do_nothing(const nxd_update_t*, void*) { return NXD_OK; }
CallbackRuleOptions custom() {
  CallbackRuleOptions options;
  options.update = do_nothing;
  return options;
}

void near(double got, double want) {
  if (!(std::fabs(got - want) <= 1e-9)) fail_msg("expected %.12g, got %.12g", want, got);
}

using States = std::vector<std::string>;

void kinds_states_and_defaults(void**) {
  const auto a = make_adamw_rule({});
  assert_string_equal(a->kind(), "adamw");
  assert_true(a->states() == (States{"exp_avg", "exp_avg_sq"}));
  assert_true(a->defaults()[NXD_HYPERPARAMETER_LEARNING_RATE] == 1e-3);
  assert_true(a->defaults()[NXD_HYPERPARAMETER_BETA1] == 0.9);
  assert_true(a->defaults()[NXD_HYPERPARAMETER_BETA2] == 0.999);
  assert_true(a->defaults()[NXD_HYPERPARAMETER_EPS] == 1e-8);
  assert_true(a->defaults()[NXD_HYPERPARAMETER_WEIGHT_DECAY] == 0);
  SgdOptions options;
  assert_true(make_sgd_rule(options)->states().empty());
  options.momentum = 0.5;
  options.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
  const auto s = make_sgd_rule(options);
  assert_string_equal(s->kind(), "sgd");
  assert_true(s->states() == States{"momentum"});
  assert_int_equal(s->bf16_update(), NXD_BF16_UPDATE_STOCHASTIC);
  assert_true(s->defaults()[NXD_HYPERPARAMETER_MOMENTUM] == 0.5);
  auto own = custom();
  own.num_states = 2;
  own.weight_decay = 0.25;
  const auto c = make_callback_rule(own);
  assert_string_equal(c->kind(), "custom");
  assert_true(c->states() == (States{"state0", "state1"}));
  assert_true(c->defaults()[NXD_HYPERPARAMETER_LEARNING_RATE] == 1e-3);
  assert_true(c->defaults()[NXD_HYPERPARAMETER_WEIGHT_DECAY] == 0.25);
}

template <class Options>
struct BadField {
  void (*set)(Options& options);
  const char* part;
};

void bad_adamw_options(void**) {
  using O = AdamwOptions;
  const BadField<O> all[] = {
      {[](O& o) { o.learning_rate = -1; },
       "learning_rate: expected a finite number of at least 0, got -1"},
      {[](O& o) { o.learning_rate = kInfinity; }, "learning_rate"},
      {[](O& o) { o.beta1 = 1; }, "beta1: expected a number of [0, 1), got 1"},
      {[](O& o) { o.beta2 = -0.5; }, "beta2: expected a number of [0, 1), got -0.5"},
      {[](O& o) { o.beta2 = kNan; }, "beta2"},
      {[](O& o) { o.eps = -1e-8; }, "eps"},
      {[](O& o) { o.weight_decay = kInfinity; }, "weight_decay"},
      {[](O& o) { o.learning_rate = 1e39; },
       "learning_rate: expected a number that f32 has, at most 3.40282e+38, got 1e+39"},
      {[](O& o) { o.weight_decay = 1e39; },
       "weight_decay: expected a number that f32 has, at most 3.40282e+38, got 1e+39"},
      {[](O& o) { o.eps = 1e39; },
       "eps: expected a number that f32 has, at most 3.40282e+38, got 1e+39"},
      {[](O& o) { o.eps = 1e-50; },
       "eps: expected 0 or a number that f32 has, at least 1.4013e-45"
       ", got 1e-50"},
      {[](O& o) { o.formula = 2; }, "formula: expected NXD_ADAMW_FORMULA_TORCH or _NXD, got 2"},
      {[](O& o) { o.bf16_update = -1; }, "bf16_update"}};
  for (const auto& bad : all) {
    O options;
    bad.set(options);
    refused([&] { make_adamw_rule(options); }, bad.part);
  }
}

void bad_sgd_options(void**) {
  using O = SgdOptions;
  const BadField<O> all[] = {
      {[](O& o) { o.learning_rate = kNan; }, "learning_rate"},
      {[](O& o) { o.momentum = 1; }, "momentum: expected a number of [0, 1), got 1"},
      {[](O& o) { o.dampening = 2; }, "dampening: expected a number of [0, 1], got 2"},
      {[](O& o) { o.learning_rate = 1e39; }, "learning_rate: expected a number that f32 has"},
      {[](O& o) { o.weight_decay = 1e39; }, "weight_decay: expected a number that f32 has"},
      {[](O& o) { o.weight_decay = -1; }, "weight_decay"},
      {[](O& o) { o.nesterov = true; }, "momentum: expected more than 0 with nesterov, got 0"},
      {[](O& o) { o.nesterov = true, o.momentum = 0.5, o.dampening = 0.5; },
       "dampening: expected 0 with nesterov, got 0.5"},
      {[](O& o) { o.bf16_update = 3; }, "bf16_update"}};
  for (const auto& bad : all) {
    O options;
    bad.set(options);
    refused([&] { make_sgd_rule(options); }, bad.part);
  }
}

void bad_custom_options(void**) {
  using O = CallbackRuleOptions;
  const BadField<O> all[] = {
      {[](O& o) { o.update = nullptr; }, "update: expected a callback, got NULL"},
      {[](O& o) { o.num_states = 9; }, "num_states: expected 0 to 8, got 9"},
      {[](O& o) { o.num_states = -1; }, "num_states"},
      {[](O& o) { o.learning_rate = -1; }, "learning_rate"},
      {[](O& o) { o.weight_decay = kNan; }, "weight_decay"},
      {[](O& o) { o.learning_rate = 1e39; }, "learning_rate: expected a number that f32 has"},
      {[](O& o) { o.bf16_update = NXD_BF16_UPDATE_STOCHASTIC; }, "bf16_update"}};
  for (const auto& bad : all) {
    O options = custom();
    bad.set(options);
    refused([&] { make_callback_rule(options); }, bad.part);
  }
}

void hyperparameters_are_checked(void**) {
  const auto a = make_adamw_rule({});
  a->check(NXD_HYPERPARAMETER_LEARNING_RATE, 0);
  a->check(NXD_HYPERPARAMETER_BETA1, 0);
  a->check(NXD_HYPERPARAMETER_EPS, 0);
  a->check(NXD_HYPERPARAMETER_EPS, std::numeric_limits<float>::denorm_min());
  a->check(NXD_HYPERPARAMETER_LEARNING_RATE, std::numeric_limits<float>::max());
  a->check(NXD_HYPERPARAMETER_LEARNING_RATE, 1e-50);
  refused([&] { a->check(NXD_HYPERPARAMETER_LEARNING_RATE, 3.5e38); }, "a number that f32 has");
  refused([&] { a->check(NXD_HYPERPARAMETER_EPS, 1e-46); }, "eps: expected 0 or a number that f32");
  refused([&] { a->check(NXD_HYPERPARAMETER_LEARNING_RATE, -1); }, "learning_rate");
  refused([&] { a->check(NXD_HYPERPARAMETER_MOMENTUM, 0.5); },
          "expected one of adamw's, which are learning_rate, weight_decay, beta1, beta2, eps, got "
          "momentum");
  refused([&] { a->check(NXD_HYPERPARAMETER_INVALID, 0); }, "got -1");
  refused([&] { a->check(7, 0); }, "got 7");
  const auto s = make_sgd_rule({});
  refused([&] { s->check(NXD_HYPERPARAMETER_BETA1, 0.5); }, "got beta1");
  refused([&] { s->check(NXD_HYPERPARAMETER_MOMENTUM, 0.5); }, "made without, got 0.5");
  s->check(NXD_HYPERPARAMETER_MOMENTUM, 0);
  SgdOptions options;
  options.momentum = 0.9;
  options.nesterov = true;
  const auto n = make_sgd_rule(options);
  n->check(NXD_HYPERPARAMETER_MOMENTUM, 0.1);
  refused([&] { n->check(NXD_HYPERPARAMETER_MOMENTUM, 0); }, "with nesterov");
  refused([&] { n->check(NXD_HYPERPARAMETER_DAMPENING, 0.1); }, "with nesterov");
  refused([&] { make_callback_rule(custom())->check(NXD_HYPERPARAMETER_EPS, 1); }, "got eps");
}

// One f64 parameter that starts from a value, and its states.
struct Scalar {
  std::string name = "w";
  double value;
  double states[2] = {0, 0};
  void* pointers[2] = {&states[0], &states[1]};
  int64_t step = 0;

  void update(const UpdateRule& rule, const Hyperparameters& hyper, double grad, bool reference) {
    UpdateSpan span;
    span.name = &name;
    span.count = 1;
    span.dtype = span.grad_dtype = NXD_DTYPE_F64;
    span.param = &value;
    span.grad = &grad;
    span.states = pointers;
    span.learning_rate = hyper[NXD_HYPERPARAMETER_LEARNING_RATE];
    span.grad_scale = 0.5;
    span.step = ++step;
    span.reference = reference;
    rule.update(span, hyper);
  }
};

// The algorithm in the documentation of torch.optim.SGD, in double: p = 1, learning rate 0.1,
// gradients 1, -0.5 and 0.25.
void sgd_values(void**) {
  struct Recorded {
    double momentum, dampening, weight_decay;
    bool nesterov;
    double want[3];
  };
  const Recorded all[] = {
      {0, 0, 0, false, {0.9, 0.95, 0.925}},
      {0, 0, 0.1, false, {0.89, 0.9311, 0.896789}},
      {0.9, 0, 0, false, {0.9, 0.86, 0.799}},
      {0.9, 0.3, 0.1, false, {0.89, 0.81977, 0.73332461}},
      {0.9, 0, 0.1, true, {0.791, 0.781871, 0.673418351}},
  };
  const double grads[] = {1, -0.5, 0.25};
  for (const Recorded& recorded : all) {
    SgdOptions options;
    options.learning_rate = 0.1;
    options.momentum = recorded.momentum;
    options.dampening = recorded.dampening;
    options.weight_decay = recorded.weight_decay;
    options.nesterov = recorded.nesterov;
    const auto rule = make_sgd_rule(options);
    for (const bool reference : {false, true}) {
      Scalar p{.value = 1};
      for (int i = 0; i < 3; ++i) {
        p.update(*rule, rule->defaults(), 2 * grads[i], reference);
        near(p.value, recorded.want[i]);
      }
    }
  }
}

// Values that torch and NxD Core recorded, to their 7 digits; and hyperparameters other than the
// rule's own, as those of a group.
void adamw_values(void**) {
  const double grads[] = {0.5, 0.25, 0};
  const double want[2][3] = {{.9000002, .8067825, .7347249}, {.8991063, .8050877, .7323011}};
  for (const auto formula : {NXD_ADAMW_FORMULA_TORCH, NXD_ADAMW_FORMULA_NXD}) {
    AdamwOptions options;
    options.formula = formula;
    options.beta1 = 0.5;
    const auto rule = make_adamw_rule(options);
    Hyperparameters hyper = rule->defaults();
    hyper[NXD_HYPERPARAMETER_LEARNING_RATE] = 0.1;
    hyper[NXD_HYPERPARAMETER_BETA1] = 0.9;
    hyper[NXD_HYPERPARAMETER_EPS] = 1e-6;
    hyper[NXD_HYPERPARAMETER_WEIGHT_DECAY] = formula == NXD_ADAMW_FORMULA_NXD ? 0.01 : 0;
    Scalar p{.value = 1};
    for (int i = 0; i < 3; ++i) {
      p.update(*rule, hyper, 2 * grads[i], false);
      assert_true(std::fabs(p.value - want[formula][i]) < 2e-7);
    }
  }
}

// A momentum that a group has set to 0 is left out.
void group_without_momentum(void**) {
  SgdOptions options;
  options.momentum = 0.9;
  options.dampening = 0.5;
  const auto rule = make_sgd_rule(options);
  Hyperparameters hyper = rule->defaults();
  hyper[NXD_HYPERPARAMETER_LEARNING_RATE] = 1;
  hyper[NXD_HYPERPARAMETER_MOMENTUM] = 0;
  Scalar p{.value = 1};
  p.update(*rule, hyper, 1, false);
  p.update(*rule, hyper, 1, false);
  near(p.value, 0);
  near(p.states[0], 0);
}

// Calls that a caller's rule has seen.
struct Seen {
  nxd_update_t last{};
  std::string name;
  nxd_status_t answer = NXD_OK;
};

// param -= rate * (grad_scale * grad + decay * param) in the dtype that is given.
nxd_status_t descend(const nxd_update_t* u, void* user_data) {
  auto& seen = *static_cast<Seen*>(user_data);
  seen.last = *u;
  seen.name = u->parameter;
  for (int64_t i = 0; i < u->count; ++i) {
    if (u->dtype == NXD_DTYPE_BF16) {
      auto* p = static_cast<kernels::Bf16*>(u->param) + i;
      const float g = kernels::to_float(static_cast<const kernels::Bf16*>(u->grad)[i]);
      static_cast<float*>(u->states[0])[i] += g;
      *p = kernels::to_bf16(kernels::to_float(*p) -
                            static_cast<float>(u->learning_rate * u->grad_scale) * g);
    } else {
      auto* p = static_cast<float*>(u->param) + i;
      const double g = u->grad_scale * static_cast<double>(static_cast<const float*>(u->grad)[i]);
      *p -= static_cast<float>(u->learning_rate * (g + u->weight_decay * static_cast<double>(*p)));
    }
  }
  return seen.answer;
}

CallbackRuleOptions descending(Seen& seen) {
  CallbackRuleOptions options;
  options.update = descend;
  options.user_data = &seen;
  options.num_states = 1;
  return options;
}

void callers_rule_sees_everything(void**) {
  Seen seen;
  const auto rule = make_callback_rule(descending(seen));
  const std::string name = "layers.3.weight";
  float param[] = {1, 2, 300};
  const float grad[] = {2, 4, 8};
  float state[3] = {};
  kernels::Bf16 copy[3] = {}, peer_copy[3] = {};
  void* states[] = {state};
  const std::vector<void*> peer_copies{peer_copy};
  UpdateSpan span;
  span.name = &name;
  span.begin = 17;
  span.count = 3;
  span.param = param;
  span.grad = grad;
  span.states = states;
  span.copy = copy;
  span.peer_copies = &peer_copies;
  span.learning_rate = 0.25;
  span.grad_scale = 0.5;
  span.step = 9;
  Hyperparameters hyper = rule->defaults();
  hyper[NXD_HYPERPARAMETER_WEIGHT_DECAY] = 0.125;
  rule->update(span, hyper);
  assert_string_equal(seen.name.c_str(), "layers.3.weight");
  assert_int_equal(seen.last.struct_size, sizeof(nxd_update_t));
  assert_int_equal(seen.last.begin, 17);
  assert_int_equal(seen.last.count, 3);
  assert_int_equal(seen.last.dtype, NXD_DTYPE_F32);
  assert_int_equal(seen.last.grad_dtype, NXD_DTYPE_F32);
  assert_int_equal(seen.last.step, 9);
  assert_true(seen.last.grad_scale == 0.5 && seen.last.learning_rate == 0.25);
  assert_true(seen.last.weight_decay == 0.125);
  assert_ptr_equal(seen.last.states[0], state);
  const float want[] = {1 - 0.25F * (1 + 0.125F), 2 - 0.25F * (2 + 0.25F),
                        300 - 0.25F * (4 + 37.5F)};
  for (int i = 0; i < 3; ++i) {
    near(static_cast<double>(param[i]), static_cast<double>(want[i]));
    assert_int_equal(copy[i].bits, kernels::to_bf16(param[i]).bits);
    assert_int_equal(peer_copy[i].bits, copy[i].bits);
  }
  // Without a copy the peer copies get the parameter.
  float other[3] = {};
  const std::vector<void*> others{other};
  span.copy = nullptr;
  span.peer_copies = &others;
  rule->update(span, hyper);
  assert_memory_equal(other, param, sizeof param);
}

// NEAREST: the caller's rule works on BF16 itself, with states in F32.
void callers_rule_in_bf16(void**) {
  Seen seen;
  auto options = descending(seen);
  options.bf16_update = NXD_BF16_UPDATE_NEAREST;
  const auto rule = make_callback_rule(options);
  const std::string name = "w";
  kernels::Bf16 param[] = {kernels::to_bf16(1), kernels::to_bf16(-2)};
  const kernels::Bf16 grad[] = {kernels::to_bf16(0.5), kernels::to_bf16(0.25)};
  kernels::Bf16 peer_copy[2] = {};
  float state[2] = {};
  void* states[] = {state};
  const std::vector<void*> peer_copies{peer_copy};
  UpdateSpan span;
  span.name = &name;
  span.count = 2;
  span.dtype = span.grad_dtype = NXD_DTYPE_BF16;
  span.param = param;
  span.grad = grad;
  span.states = states;
  span.peer_copies = &peer_copies;
  span.learning_rate = 1;
  rule->update(span, rule->defaults());
  assert_int_equal(seen.last.dtype, NXD_DTYPE_BF16);
  assert_int_equal(seen.last.grad_dtype, NXD_DTYPE_BF16);
  near(static_cast<double>(kernels::to_float(param[0])), 0.5);
  near(static_cast<double>(kernels::to_float(param[1])), -2.25);
  near(static_cast<double>(state[1]), 0.25);
  assert_memory_equal(peer_copy, param, sizeof param);
}

void callers_status_passes_through(void**) {
  Seen seen;
  seen.answer = -4321;
  const auto rule = make_callback_rule(descending(seen));
  const std::string name = "w";
  float param = 1, grad = 1, state = 0, peer_copy = 7;
  void* states[] = {&state};
  const std::vector<void*> peer_copies{&peer_copy};
  UpdateSpan span;
  span.name = &name;
  span.count = 1;
  span.param = &param;
  span.grad = &grad;
  span.states = states;
  span.peer_copies = &peer_copies;
  try {
    rule->update(span, rule->defaults());
    fail_msg("the callback's failure was lost");
  } catch (const Error& error) {
    assert_int_equal(error.status(), -4321);
    assert_non_null(strstr(error.what(), "update of w"));
  }
  assert_true(peer_copy == 7);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(kinds_states_and_defaults),
                              cmocka_unit_test(bad_adamw_options),
                              cmocka_unit_test(bad_sgd_options),
                              cmocka_unit_test(bad_custom_options),
                              cmocka_unit_test(hyperparameters_are_checked),
                              cmocka_unit_test(sgd_values),
                              cmocka_unit_test(adamw_values),
                              cmocka_unit_test(group_without_momentum),
                              cmocka_unit_test(callers_rule_sees_everything),
                              cmocka_unit_test(callers_rule_in_bf16),
                              cmocka_unit_test(callers_status_passes_through)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
