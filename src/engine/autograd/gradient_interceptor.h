#pragma once

#include <ATen/core/Tensor.h>

#include "engine/graph_node.h"

namespace nxd {

// Looks at gradients where backward passes are about to add them to leaves, and may take them: to
// add them later, or to hand them to another pass.
class GradientInterceptor {
 public:
  virtual ~GradientInterceptor() = default;

  // Gives the tensor that the pass adds to the leaf: grad, which may be undefined, or nothing.
  virtual at::Tensor arrive(const at::Tensor& leaf, at::Tensor grad) = 0;
  // True if the leaf's gradient is not complete yet, so that no hook is to hear of it.
  virtual bool holds_back(const at::Tensor& leaf) const = 0;

  // Asks this thread's interceptors, the innermost first.
  static bool any_holds_back(const at::Tensor& leaf);
};

// Makes an interceptor this thread's for a scope, inside of those there are.
class InterceptionScope {
 public:
  explicit InterceptionScope(GradientInterceptor& interceptor) noexcept;
  ~InterceptionScope();
  InterceptionScope(const InterceptionScope&) = delete;
  InterceptionScope& operator=(const InterceptionScope&) = delete;

  GradientInterceptor& interceptor() const { return interceptor_; }
  const InterceptionScope* outer() const { return outer_; }
  static const InterceptionScope* innermost() noexcept;

 private:
  GradientInterceptor& interceptor_;
  const InterceptionScope* outer_;
};

// The leaf's accumulator, made such that interceptors see what arrives there for as long as it
// lives. The leaf requires a gradient.
HeldNode watched_accumulator(const at::Tensor& leaf);

}  // namespace nxd
