#pragma once

#include <vector>

#include "engine/nn/module.h"
#include "engine/training/optimizer.h"

namespace nxd {

// AdamW (Loshchilov and Hutter 2019) with torch's formula, over the parameters of a tree that are
// trainable when it is made. State is sized like this rank's shards and made at the first update.
class AdamW : public Optimizer {
 public:
  // Fields that are zero take the defaults of nxd.h; INVALID_ARGUMENT for values out of range.
  AdamW(const std::shared_ptr<Module>& root, const nxd_adamw_options_t& options);

  void step() override;

 private:
  struct Slot {
    std::shared_ptr<Parameter> parameter;
    int64_t updates = 0;
    at::Tensor exp_avg, exp_avg_sq;
    // f32 copy of a BF16 parameter, and the value it belongs to: a parameter that was written since
    // the last update, by a load for instance, is read again.
    at::Tensor master;
    at::Tensor seen;
    uint32_t seen_version = 0;
  };

  void prepare(Slot& slot) const;
  void update_fused(Slot& slot, const at::Tensor& grad) const;
  void update_plain(Slot& slot, const at::Tensor& grad) const;

  std::shared_ptr<Module> root_;
  nxd_adamw_options_t options_;
  std::vector<Slot> slots_;
};

}  // namespace nxd
