#pragma once

#include <memory>

#include "nxd.h"

namespace nxd {

// Updates parameters from their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates every trainable parameter that has a gradient, and advances the context's step.
  virtual void step() = 0;

  double learning_rate() const { return learning_rate_; }
  // INVALID_ARGUMENT when negative or not finite.
  void set_learning_rate(double rate);

 protected:
  double learning_rate_ = 0;
};

}  // namespace nxd

struct nxd_optimizer {
  std::unique_ptr<nxd::Optimizer> value;
};
