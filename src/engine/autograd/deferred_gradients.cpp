#include "engine/autograd/deferred_gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <utility>

#include "engine/autograd/gradients.h"

namespace nxd {
namespace {

// As autograd adds up what several edges bring to a node.
void add(at::Tensor& sum, at::Tensor grad) {
  if (!grad.defined()) return;
  sum = sum.defined() ? sum + grad : std::move(grad);
}

}  // namespace

DeferredGradients* DeferredGradients::current() noexcept {
  const InterceptionScope* scope = InterceptionScope::innermost();
  for (; scope; scope = scope->outer()) {
    if (auto* found = dynamic_cast<DeferredGradients*>(&scope->interceptor())) return found;
  }
  return nullptr;
}

void DeferredGradients::watch(const at::Tensor& leaf, std::string name) {
  Watched& watched = watched_[leaf.unsafeGetTensorImpl()];
  watched.name = std::move(name);
  watched.accumulator = watched_accumulator(leaf);
}

void DeferredGradients::push(const at::Tensor& leaf, WeightProduct product) {
  Pending& pending = pending_[leaf.unsafeGetTensorImpl()];
  if (pending.products++ == 0) pending.accumulator = watched_accumulator(leaf);
  entries_.push_back({leaf, std::move(product)});
}

void DeferredGradients::hold_arrivals_of(const DeferredGradients& earlier) {
  for (const auto& [leaf, pending] : earlier.pending_) {
    pending_[leaf].accumulator = pending.accumulator;
  }
}

at::Tensor DeferredGradients::arrive(const at::Tensor& leaf, at::Tensor grad) {
  if (!grad.defined()) return grad;
  const Key key = leaf.unsafeGetTensorImpl();
  const auto watched = watched_.find(key);
  if (watched != watched_.end() && !std::exchange(watched->second.listed, true)) {
    unsplit_.push_back(watched->second.name);
  }
  const auto found = pending_.find(key);
  if (found == pending_.end()) return grad;
  add(found->second.arrived, std::move(grad));
  return {};
}

bool DeferredGradients::holds_back(const at::Tensor& leaf) const {
  return pending_.count(leaf.unsafeGetTensorImpl()) != 0;
}

void DeferredGradients::run() {
  const at::NoGradGuard no_grad;
  std::vector<Entry> entries = std::exchange(entries_, {});
  auto pending = std::exchange(pending_, {});
  for (Entry& entry : entries) {
    const auto found = pending.find(entry.leaf.unsafeGetTensorImpl());
    Pending& of_leaf = found->second;
    add(of_leaf.sum, std::exchange(entry.product, nullptr)(gradient_in_place(entry.leaf)));
    if (--of_leaf.products > 0) continue;
    finish(std::move(of_leaf));
    pending.erase(found);
  }
  for (auto& [leaf, held] : pending) {
    if (held.arrived.defined()) finish(std::move(held));
  }
}

void DeferredGradients::finish(Pending pending) const {
  add(pending.sum, std::move(pending.arrived));
  torch::autograd::Node& accumulator = *pending.accumulator;
  if (pending.sum.defined()) {
    accumulator({std::move(pending.sum)});
    own_gradient(dynamic_cast<const torch::autograd::AccumulateGrad&>(accumulator).variable);
  }
  for (const auto& hook : std::as_const(accumulator).post_hooks()) (*hook)({}, {});
}

bool puts_off_gradient(const at::Tensor& weight) {
  return DeferredGradients::current() && pass_adds_to(weight);
}

at::Tensor weight_gradient(const at::Tensor& weight, WeightProduct product) {
  if (!puts_off_gradient(weight)) return product(gradient_to_add_to(weight));
  DeferredGradients::current()->push(weight, std::move(product));
  return {};
}

}  // namespace nxd
