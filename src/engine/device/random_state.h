#pragma once

#include <ATen/core/Tensor.h>

namespace nxd {

// Random bits of ATen's operators on the device are drawn when a graph runs, from ATen's generator,
// in the order of the calls. Its state at a place among these calls is a value of the graph like
// any other, which another graph may take later.

// Finds the state before the first random bits that this thread records in a scope. Scopes nest.
class RandomStateScope {
 public:
  RandomStateScope();
  ~RandomStateScope();
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

  // A tensor of the device; undefined where nothing was drawn.
  const at::Tensor& state() const { return state_; }

 private:
  friend void random_bits_follow();

  RandomStateScope* const outer_;
  at::Tensor state_{};
};

// For the recorder: an operator that draws random bits is recorded next.
void random_bits_follow();

// From here on the graph draws from this state; gives the state that it had.
at::Tensor exchange_random_state(const at::Tensor& state);

}  // namespace nxd
