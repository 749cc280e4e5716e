#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

// A span of one parameter's elements to update.
struct UpdateSpan {
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
  // The same span in the memory of other ranks, which gets what the parameter gets: of copy where
  // there is one, else of param.
  const std::vector<void*>* peer_copies = nullptr;
  const kernels::RoundingSource* rounding = nullptr;
  double learning_rate = 0;  // with the schedule's factor
  double grad_scale = 1;
  int64_t step = 1;
  bool reference = false;  // the scalar form of the kernel
};

// A rule's update as a compiler sees it. Memory apart, UpdateSpan has all that numbers follow from.
struct UpdateForm {
  const char* name = nullptr;  // such as "nxd::adamw"
  std::string attributes{};    // decide on the code
  std::vector<double> numbers{};
};

struct AdamwOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  nxd_adamw_formula_t formula = NXD_ADAMW_FORMULA_TORCH;
  nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER;
};

struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0, dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER;
};

// A rule of a caller's; see nxd_optimizer_create_custom.
struct CallbackRuleOptions {
  nxd_update_fn update = nullptr;
  void* user_data = nullptr;  // the rule's holder keeps it
  double learning_rate = 1e-3;
  double weight_decay = 0;
  int num_states = 0;
  nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER;
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
  virtual bool has(nxd_hyperparameter_t which) const = 0;
  // INVALID_ARGUMENT for one that the rule does not have, or a value out of range.
  virtual void check(nxd_hyperparameter_t which, double value) const = 0;
  virtual void update(const UpdateSpan& span, const Hyperparameters& hyper) const = 0;
  // Nothing for a rule that only the host can carry out, with values that are known.
  virtual std::optional<UpdateForm> form(const UpdateSpan& span,
                                         const Hyperparameters& hyper) const = 0;
};

// INVALID_ARGUMENT for options out of range.
std::unique_ptr<UpdateRule> make_adamw_rule(const AdamwOptions& options);
std::unique_ptr<UpdateRule> make_sgd_rule(const SgdOptions& options);
std::unique_ptr<UpdateRule> make_callback_rule(const CallbackRuleOptions& options);

}  // namespace nxd
