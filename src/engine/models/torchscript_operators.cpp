#include "engine/models/torchscript_operators.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/functional/attention_op.h"
#include "engine/functional/score_mask.h"
#include "engine/layers/dropout.h"
#include "engine/layers/random_values.h"
#include "engine/ops/autocast.h"
#include "engine/ops/compute.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

namespace jit = torch::jit;
using Tensors = Module::Tensors;

// x / sqrt(mean(x^2) + epsilon), over the last dimensions, as many as sizes has, times the weight.
// epsilon is that of x's sums without one.
at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef sizes, const at::Tensor& weight,
                    std::optional<double> epsilon) {
  const auto given = static_cast<int64_t>(sizes.size());
  check_argument(
      given > 0 && x.dim() >= given && x.sizes().slice(x.sizes().size() - sizes.size()) == sizes,
      "rms_norm: expected an input of shape [..., ", sizes, "], got ", x.sizes());
  const at::ScalarType wide = partial_sum_dtype(x.scalar_type());
  const double smallest = wide == at::kDouble ? std::numeric_limits<double>::epsilon()
                                              : double{std::numeric_limits<float>::epsilon()};
  std::vector<int64_t> dims;
  for (int64_t d = -given; d < 0; ++d) dims.push_back(d);
  const at::Tensor in = x.to(wide);
  at::Tensor y = in * at::rsqrt(at::mean(in * in, dims, true) + epsilon.value_or(smallest));
  if (weight.defined()) y = y * weight;
  return y.to(x.scalar_type());
}

void run_rms_norm(jit::Stack& stack) {
  const c10::IValue epsilon = jit::pop(stack), weight = jit::pop(stack);
  const std::vector<int64_t> sizes = jit::pop(stack).toIntVector();
  const at::Tensor x = jit::pop(stack).toTensor();
  jit::push(stack,
            rms_norm(x, sizes, weight.isNone() ? at::Tensor() : weight.toTensor(),
                     epsilon.isNone() ? std::nullopt : std::optional<double>(epsilon.toDouble())));
}

void register_if_unknown(const char* name, const char* signature, void (*function)(jit::Stack&)) {
  if (!jit::getAllOperatorsFor(c10::Symbol::fromQualString(name)).empty()) return;
  jit::registerOperator(
      jit::Operator(std::string(name) + signature, function, c10::AliasAnalysisKind::FROM_SCHEMA));
}

void check_probability(const ScriptSite& site, const char* what, double p) {
  check_argument(p >= 0 && p <= 1, site.module->class_name(), ": ", what,
                 ": expected a probability from 0 to 1, got ", p);
}

at::Tensor drawn_factors(const ScriptSite& site, std::vector<int64_t> sizes, double p,
                         const at::TensorOptions& options) {
  return dropout_factors(dropout_site_of_now(*site.module->context(), site.name), std::move(sizes),
                         p, options);
}

void check_draw(const ScriptSite& site, const ScriptDraw& draw, const at::Tensor& values) {
  const std::string& who = site.module->class_name();
  check_argument(values.is_floating_point(), who, ": random numbers: expected a float dtype, got ",
                 dtype_text(values.scalar_type()));
  switch (draw.kind) {
    case ScriptDraw::Kind::kUniform:
      check_argument(std::isfinite(draw.second - draw.first) && draw.first <= draw.second, who,
                     ": uniform_: expected from <= to, got ", draw.first, " and ", draw.second);
      break;
    case ScriptDraw::Kind::kNormal:
      check_argument(std::isfinite(draw.first) && std::isfinite(draw.second) && draw.second >= 0,
                     who, ": normal_: expected a deviation of at least 0, got mean ", draw.first,
                     " and deviation ", draw.second);
      break;
    case ScriptDraw::Kind::kBernoulli: check_probability(site, "bernoulli", draw.first); break;
    case ScriptDraw::Kind::kExponential:
      check_argument(std::isfinite(draw.first) && draw.first > 0, who,
                     ": exponential_: expected a positive rate, got ", draw.first);
      break;
  }
}

// On the CPU. The device takes them as an input of the graph, so that each step has others.
at::Tensor values_of_site(const RandomSite& site, const ScriptDraw& draw,
                          std::vector<int64_t> sizes, at::ScalarType dtype) {
  switch (draw.kind) {
    case ScriptDraw::Kind::kUniform:
      return uniform_values(site, std::move(sizes), dtype, draw.first, draw.second);
    case ScriptDraw::Kind::kNormal:
      return normal_values(site, std::move(sizes), dtype, draw.first, draw.second);
    case ScriptDraw::Kind::kBernoulli:
      return bernoulli_values(site, std::move(sizes), dtype, draw.first);
    case ScriptDraw::Kind::kExponential:
      return at::log1p(-uniform_values(site, std::move(sizes), partial_sum_dtype(dtype), 0, 1))
          .div(-draw.first);
  }
  fail(NXD_ERROR_INTERNAL, "draw: expected a kind of random numbers");
}

at::Tensor drawn_values(const ScriptSite& site, const ScriptDraw& draw, const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  // No trace may know what is drawn: each run of it draws other numbers.
  if (is_tracing()) {
    return at::empty(sizes, like.options().device(at::kMeta).requires_grad(false));
  }
  return values_of_site(dropout_site_of_now(*site.module->context(), site.name), draw,
                        std::move(sizes), like.scalar_type())
      .to(like.device());
}

at::Tensor factors_for(const ScriptSite& site, const ScriptDropout& dropout,
                       const at::Tensor& input) {
  std::vector<int64_t> sizes = input.sizes().vec();
  if (dropout.of_channels) std::fill(sizes.begin() + 2, sizes.end(), 1);
  const at::TensorOptions options = input.options().requires_grad(false);
  if (is_tracing()) return at::empty(sizes, options.device(at::kMeta));
  if (site.mode && !site.mode->training()) return at::ones(sizes, options);
  return drawn_factors(site, std::move(sizes), dropout.p, options);
}

// The library's attention has heads behind the sequence.
at::Tensor by_kernels(const ScriptSite& site, const ScriptAttention& a, const KernelMask& mask,
                      double scale) {
  AttentionArgs args;
  args.causal = mask.causal;
  args.key_mask = mask.key_mask;
  args.scale = scale;
  if (a.dropout > 0 && !a.q.is_meta()) {
    const at::ScalarType wide = partial_sum_dtype(a.q.scalar_type());
    const std::vector<int64_t> sizes = {a.q.size(0), a.q.size(1), a.q.size(2), a.k.size(2)};
    args.dropout = {1 - a.dropout, a.q.size(1), 0,
                    [&site, &a] {
                      return site_words_of(dropout_site_of_now(*site.module->context(), site.name))
                          .to(a.q.device());
                    },
                    [&site, &a, sizes, wide] {
                      return drawn_factors(site, sizes, a.dropout, a.q.options().dtype(wide));
                    }};
  }
  return attention(*site.module->context(), args, a.q.transpose(1, 2), a.k.transpose(1, 2),
                   a.v.transpose(1, 2))
      .transpose(1, 2);
}

at::Tensor with_heads_of(const at::Tensor& q, const at::Tensor& x) {
  const int64_t shared = x.size(-3) == 0 ? 1 : q.size(-3) / x.size(-3);
  if (shared == 1) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.end() - 2, shared);
  at::Tensor repeated = x.unsqueeze(-3).expand(sizes);
  sizes = x.sizes().vec();
  sizes[sizes.size() - 3] *= shared;
  return repeated.reshape(sizes);
}

// By operators. A query that sees no key gives 0.
at::Tensor by_operators(const ScriptSite& site, const ScriptAttention& a, double scale) {
  const at::ScalarType wide = partial_sum_dtype(a.q.scalar_type());
  const at::Tensor k = a.grouped_queries ? with_heads_of(a.q, a.k) : a.k;
  const at::Tensor v = a.grouped_queries ? with_heads_of(a.q, a.v) : a.v;
  at::Tensor scores = at::matmul(a.q.to(wide) * scale, k.to(wide).transpose(-2, -1));
  at::Tensor hidden;
  if (a.causal) {
    hidden = at::ones({scores.size(-2), scores.size(-1)},
                      scores.options().dtype(at::kBool).requires_grad(false))
                 .triu(1);
  } else if (a.mask.defined() && a.mask.scalar_type() == at::kBool) {
    hidden = a.mask.logical_not();
  } else if (a.mask.defined()) {
    scores = scores + a.mask.to(wide);
  }
  if (hidden.defined()) {
    scores = scores.masked_fill(hidden, std::numeric_limits<float>::lowest());
  }
  at::Tensor weights = at::softmax(scores, -1);
  if (hidden.defined()) weights = weights.masked_fill(hidden, 0);
  if (a.dropout > 0 && !a.q.is_meta()) {
    weights = weights * drawn_factors(site, weights.sizes().vec(), a.dropout, weights.options());
  }
  return at::matmul(weights, v.to(wide)).to(a.q.scalar_type());
}

bool has_form_of_kernels(const ScriptAttention& a) {
  const auto is_head_wise = [](const at::Tensor& x) { return x.dim() == 4; };
  if (!is_head_wise(a.q) || !is_head_wise(a.k) || !is_head_wise(a.v)) return false;
  const int64_t heads = a.q.size(1), kv_heads = a.k.size(1);
  const bool same_heads =
      a.grouped_queries ? kv_heads > 0 && heads % kv_heads == 0 : heads == kv_heads;
  return same_heads && a.dropout < 1 && a.k.sizes() == a.v.sizes() && a.q.size(0) == a.k.size(0) &&
         a.q.size(3) == a.k.size(3) && a.q.scalar_type() == a.k.scalar_type() &&
         a.q.scalar_type() == a.v.scalar_type();
}

// The mask for the kernels, where they have the form. Theirs lets the last of fewer queries see all
// keys; is_causal does not.
std::optional<KernelMask> mask_of_kernels(const ScriptAttention& a) {
  if (!has_form_of_kernels(a)) return std::nullopt;
  if (a.mask.defined()) {
    const int64_t heads = a.mask.dim() < 3 ? 1 : a.mask.size(-3);
    if (heads != 1 && heads != a.q.size(1)) return std::nullopt;  // no broadcast, as operators say
    return kernel_mask(a.mask, a.q.size(0), a.q.size(2), a.k.size(2));
  }
  if (a.causal && a.q.size(2) != a.k.size(2)) return std::nullopt;
  return KernelMask{a.causal, {}};
}

}  // namespace

c10::Symbol known_to_interpreter(const char* name, const char* signature,
                                 void (*function)(jit::Stack&)) {
  jit::registerOperator(
      jit::Operator(std::string(name) + signature, function, c10::AliasAnalysisKind::CONSERVATIVE));
  return c10::Symbol::fromQualString(name);
}

void register_newer_operators(void (*attention)(jit::Stack&)) {
  static const bool registered = [attention] {
    register_if_unknown(kScriptAttention, kScriptAttentionSignature, attention);
    register_if_unknown("aten::rms_norm",
                        "(Tensor input, int[] normalized_shape, Tensor? weight=None, "
                        "float? eps=None) -> Tensor",
                        &run_rms_norm);
    return true;
  }();
  (void)registered;
}

at::Tensor drop(const ScriptSite& site, const ScriptDropout& dropout) {
  check_probability(site, "dropout", dropout.p);
  check_argument(!dropout.of_channels || dropout.input.dim() >= 2, site.module->class_name(),
                 ": feature_dropout: expected at least 2 dimensions, got shape ",
                 dropout.input.sizes());
  // A trace has it whether it is on or not, where a module says so: that is asked again in a run.
  const bool may_be_on = dropout.is_on || (is_tracing() && site.mode);
  if (!may_be_on || dropout.p == 0 || dropout.input.numel() == 0) return dropout.input;
  ScriptDropout form = dropout;
  form.input.reset();
  const at::Tensor factors = call_opaque("dropout", {dropout.input}, [=](const Tensors& inputs) {
    return Tensors{factors_for(site, form, inputs[0])};
  })[0];
  at::Tensor input = dropout.input;
  return dropout.in_place ? input.mul_(factors) : input * factors;
}

at::Tensor attend(const ScriptSite& site, const ScriptAttention& attention) {
  check_probability(site, "scaled_dot_product_attention: dropout_p", attention.dropout);
  check_argument(!attention.mask.defined() || !attention.causal, site.module->class_name(),
                 ": scaled_dot_product_attention: expected a mask or is_causal, got both");
  for (const at::Tensor* x : {&attention.q, &attention.k, &attention.v}) {
    check_argument(x->dim() >= (attention.grouped_queries ? 3 : 2), site.module->class_name(),
                   ": scaled_dot_product_attention: expected [..., sequence, features], got shape ",
                   x->sizes());
  }
  ScriptAttention form = attention;
  for (at::Tensor* x : {&form.q, &form.k, &form.v, &form.mask}) x->reset();
  const Tensors inputs = {attention.q, attention.k, attention.v, attention.mask};
  const auto run = [=](const Tensors& given) {
    const AutocastPause as_written;  // the operators around it are as well
    ScriptAttention now = form;
    now.q = given[0];
    now.k = given[1];
    now.v = given[2];
    now.mask = given[3];
    const double scale = now.scale.value_or(
        1 / std::sqrt(static_cast<double>(std::max<int64_t>(now.q.size(-1), 1))));
    const std::optional<KernelMask> mask = mask_of_kernels(now);
    return Tensors{mask ? by_kernels(site, now, *mask, scale) : by_operators(site, now, scale)};
  };
  return call_opaque("scaled_dot_product_attention", inputs, run)[0];
}

at::Tensor draw(const ScriptSite& site, const ScriptDraw& draw, at::Tensor values) {
  check_draw(site, draw, values);
  const at::Tensor drawn = call_opaque("random_numbers", {values}, [=](const Tensors& inputs) {
    return Tensors{drawn_values(site, draw, inputs[0])};
  })[0];
  return values.copy_(drawn);
}

}  // namespace nxd
