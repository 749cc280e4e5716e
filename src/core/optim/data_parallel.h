#pragma once

#include <memory>

#include "core/optim/gradient_reducer.h"
#include "core/optim/parameter_gather.h"
#include "core/optim/parameter_source.h"

namespace nxd {

// A set of parameters, their gradients' reduction and, with ZeRO stage 1, the gathering of their
// values. Optimizers share its parts and may outlive it.
class DataParallel {
 public:
  virtual ~DataParallel() = default;

  const std::shared_ptr<ParameterSource>& source() const { return source_; }
  const std::shared_ptr<GradientReducer>& reducer() const { return reducer_; }
  // Null but for ZeRO stage 1.
  const std::shared_ptr<ParameterGather>& gather() const { return gather_; }

  bool sync() const { return sync_; }
  void set_sync(bool sync) { sync_ = sync; }

 protected:
  std::shared_ptr<ParameterSource> source_;
  std::shared_ptr<GradientReducer> reducer_;
  std::shared_ptr<ParameterGather> gather_;
  bool sync_ = true;
};

}  // namespace nxd

struct nxd_ddp {
  std::shared_ptr<void> owner;  // what the parameters belong to, such as a module tree
  std::shared_ptr<nxd::DataParallel> value;
};
