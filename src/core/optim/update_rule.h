#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/stochastic_rounding.h"
#include "nxd.h"

namespace nxd {

// Hyperparameters of one group of parameters, by nxd_hyperparameter_t.
struct Hyperparameters {
  static constexpr int kCount = 7;
  double values[kCount] = {};

  double operator[](nxd_hyperparameter_t which) const { return values[which]; }
  double& operator[](nxd_hyperparameter_t which) { return values[which]; }
};

// A run of one parameter's elements to update.
struct UpdateRun {
  const std::string* name = nullptr;
  int64_t begin = 0;  // within this rank's shard of the parameter
  int64_t count = 0;
  nxd_dtype_t dtype = NXD_DTYPE_F32;  // of param: F32, F64 or BF16
  nxd_dtype_t grad_dtype = NXD_DTYPE_F32;
  void* param = nullptr;
  const void* grad = nullptr;
  void* const* states = nullptr;  // as many as the rule has
  // BF16 parameter of which param is the f32 copy; or null.
  void* copy = nullptr;
  // The same run in the memory of other ranks, which gets what the parameter gets: of copy where
  // there is one, else of param.
  const std::vector<void*>* mirrors = nullptr;
  const kernels::RoundingSource* rounding = nullptr;
  double learning_rate = 0;  // with the schedule's factor
  double grad_scale = 1;
  int64_t step = 1;
  bool plain = false;  // the scalar form of the kernel
};

// Makes parameters from gradients, element by element.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Such as "adamw"; saved with states.
  virtual const char* kind() const = 0;
  // Names of the states, which start as zeros.
  virtual const std::vector<std::string>& states() const = 0;
  virtual nxd_bf16_update_t bf16_update() const = 0;
  virtual const Hyperparameters& defaults() const = 0;
  // INVALID_ARGUMENT for one that the rule does not have, or a value out of range.
  virtual void check(nxd_hyperparameter_t which, double value) const = 0;
  virtual void update(const UpdateRun& run, const Hyperparameters& hyper) const = 0;
};

// INVALID_ARGUMENT for options out of range.
std::unique_ptr<UpdateRule> make_adamw_rule(const nxd_adamw_options_t& options);
std::unique_ptr<UpdateRule> make_sgd_rule(const nxd_sgd_options_t& options);
// The rule's holder keeps user_data.
std::unique_ptr<UpdateRule> make_callback_rule(const nxd_custom_optimizer_options_t& options);

}  // namespace nxd
