#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/autograd/gradient_interceptor.h"

namespace nxd {

// Gives the gradient of a weight; or, where sum is defined, may add it there in place and give
// nothing.
using WeightProduct = std::function<at::Tensor(at::Tensor sum)>;

// Weight gradients that a backward pass leaves to be made later: those of a zero-bubble schedule's
// tasks (Qi et al. 2023). While an InterceptionScope over one of these is this thread's, layers
// push their products here and autograd gets nothing for the weight. Their operands stay
// alive until run(). One object takes the passes of one microbatch: a leaf's gradient is complete
// once per run.
//
// The bits are those of the pass that puts nothing off. Products add to the leaf in the same way.
// Gradients that other nodes gave for such a leaf wait here too, and are added last. Only a leaf
// with three uses or more of both kinds may have another order of its sum.
class DeferredGradients : public GradientInterceptor {
 public:
  // This thread's; null: products are made at once.
  static DeferredGradients* current() noexcept;

  // Has the leaf's name listed in unsplit() when a pass gives it a gradient at once.
  void watch(const at::Tensor& leaf, std::string name);
  void push(const at::Tensor& leaf, WeightProduct product);
  // Gradients that arrive for a leaf whose products of an earlier microbatch are yet to be made
  // wait for run(): until then the leaf's gradient is not complete.
  void hold_arrivals_of(const DeferredGradients& earlier);

  // Makes the products in the order in which they were pushed, adds them to the leaves, and calls
  // what waits for each gradient: the parameter's hook and the reducer's. A failure drops the rest.
  void run();
  bool empty() const { return entries_.empty(); }

  // Watched leaves of which gradients were made during backward passes: of nodes that cannot be
  // split. Each once, in the order in which they came.
  const std::vector<std::string>& unsplit() const { return unsplit_; }

  at::Tensor arrive(const at::Tensor& leaf, at::Tensor grad) override;
  bool holds_back(const at::Tensor& leaf) const override;

 private:
  using Key = const c10::TensorImpl*;
  struct Entry {
    at::Tensor leaf;
    WeightProduct product;
  };
  struct Pending {
    HeldNode accumulator;
    size_t products = 0;
    at::Tensor sum;      // of products that did not add to the leaf
    at::Tensor arrived;  // what autograd had for the leaf
  };
  struct Watched {
    std::string name;
    HeldNode accumulator;
    bool listed = false;
  };

  void finish(Pending pending) const;

  std::vector<Entry> entries_;
  std::unordered_map<Key, Pending> pending_;
  std::unordered_map<Key, Watched> watched_;
  std::vector<std::string> unsplit_;
};

// True if weight_gradient() would put the weight's product off.
bool puts_off_gradient(const at::Tensor& weight);

// The tensor that a backward function hands autograd for a weight: the product, nothing when it was
// added to the weight's gradient in place, and nothing when it was put off.
at::Tensor weight_gradient(const at::Tensor& weight, WeightProduct product);

}  // namespace nxd
