#include "engine/training/optimizer.h"

#include <cmath>

#include "core/base/error.h"

namespace nxd {

void Optimizer::set_learning_rate(double rate) {
  check_argument(std::isfinite(rate) && rate >= 0,
                 "learning_rate: expected a finite number of at least 0, got ", rate);
  learning_rate_ = rate;
}

}  // namespace nxd
