#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "core/layout/initializer.h"
#include "core/layout/shard_spec.h"
#include "core/world/context.h"
#include "engine/module/attachment.h"
#include "engine/module/gradient_hooks.h"

namespace nxd {

// F32, F64 or BF16, which parameters may be of; INVALID_ARGUMENT for others.
at::ScalarType parameter_scalar_type(nxd_dtype_t dtype);

using GroupOfShards = std::shared_ptr<ProcessGroup>;

// A caller's initial values: fills values[0, count) with those of the elements first, first + 1 and
// so on of a whole parameter of that name and shape.
using InitialValues = std::function<void(const std::string& name, const ShardSpec::Shape& shape,
                                         int64_t first, double* values, size_t count)>;

// One rank's shard of a parameter. Its tensor is a leaf that requires a gradient; nothing keeps raw
// pointers into it, so the tensor may be replaced.
class Parameter : public std::enable_shared_from_this<Parameter> {
 public:
  // On the meta device it has no value; one that it gets later lies on the device home.
  Parameter(std::string canonical_name, ShardSpec shard, Initializer initializer,
            at::ScalarType dtype, at::Device device, at::Device home);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& canonical_name() const { return canonical_name_; }
  const ShardSpec& shard() const { return shard_; }
  at::Tensor& tensor() { return tensor_; }
  const at::Tensor& tensor() const { return tensor_; }

  // Ranks that together hold the whole: the tensor-parallel group of the module's context when it
  // was added; none before nxd_init_model_parallel.
  const GroupOfShards& shard_group() const { return shard_group_; }
  void set_shard_group(GroupOfShards group) { shard_group_ = std::move(group); }

  // Ranks whose gradients for this very shard are partial and must be summed: the tensor-parallel
  // group for norms under sequence parallelism, the ranks that share a key head, or none.
  const std::shared_ptr<ProcessGroup>& gradient_group() const { return gradient_group_; }
  void set_gradient_group(std::shared_ptr<ProcessGroup> group) {
    gradient_group_ = std::move(group);
  }

  // False where another rank counts the same elements in norms, as one of those that share a key
  // head or the first stage of several does. A replicated parameter needs it not: see
  // ParameterInfo::is_whole.
  bool counts_in_norm() const { return counts_in_norm_; }
  void set_counts_in_norm(bool counts) { counts_in_norm_ = counts; }

  // Draws the initial value again, as a function of (seed, name, global index). On the meta device
  // these are kept for materialize().
  void initialize(uint64_t seed, const std::string& canonical_name);

  // Draws are by this from now on; an empty one: by the initialiser again.
  void set_initial_values(InitialValues values) { initial_values_ = std::move(values); }

  // On the meta device there is no value.
  bool has_value() const { return !tensor().is_meta(); }
  // On which its value lies, or will.
  at::Device device() const { return has_value() ? tensor().device() : home_; }
  // Gives a parameter on the meta device its initial value, or one that fill writes into an
  // uninitialised tensor of the shard's shape. One that has a value keeps it, and one that is
  // elsewhere gets none. Hooks and whether a gradient is required stay.
  void materialize();
  void materialize(const std::function<void(at::Tensor& value)>& fill);
  // Moves value and gradient to another device. One that comes from the meta device gets its
  // initial value, unless it is elsewhere. INVALID_STATE while a ddp has them.
  void move_to(at::Device device);
  // Rounds or widens value and gradient. INVALID_STATE while a ddp has them.
  void cast_to(at::ScalarType dtype);
  // Moves to the meta device: forgets value and gradient. The same error.
  void release();
  // The same error, before several are moved.
  void check_movable() const;

  // nxd_pp_create has traced a model with the parameter, and ranks have given up what is not
  // theirs: its shape, dtype and place in the tree stay as they are from now on.
  void mark_cut() { is_cut_ = true; }
  // Optimizers and ddps that were made with it: their states and buckets have its name.
  void add_trainer() { ++trainers_; }
  void remove_trainer() { --trainers_; }
  // INVALID_STATE while there are any, before it leaves its tree.
  void check_untrained(const char* call) const;
  // The rank has given it up to those whose stages have it: moves and loads of the whole model
  // leave it without a value, which would be of no step of theirs.
  bool is_elsewhere() const { return is_elsewhere_; }
  void set_elsewhere(bool elsewhere) { is_elsewhere_ = elsewhere; }
  // INVALID_STATE for a parameter of such a model.
  void check_uncut(const char* call) const;
  // The whole initial value, drawn on this rank alone. One that is kept is drawn whenever the
  // shard's is.
  void keep_initial_full();
  const at::Tensor& initial_full();

  // Another one where the value has been written or replaced; a move to another device is neither.
  uint64_t version() const { return carried_versions_ + tensor_version(); }

  // Overwrites the shard, or gives it its value, with a tensor of its shape and dtype on the CPU,
  // which is the parameter's own from now on.
  void set_value(at::Tensor value);
  // The same with its part of the whole.
  void set_full(const at::Tensor& full);
  // Has another part of the same whole on this rank from now on: value_of(shard, the whole), or on
  // the meta device nothing. Forgets the gradient. INVALID_STATE while a ddp has it.
  void reshard(ShardSpec shard, at::Tensor value);
  // The value that another part of the same whole has on this device.
  at::Tensor value_of(const ShardSpec& shard, const at::Tensor& full) const;
  // This rank's part of a tensor of the global shape; padding is zero.
  at::Tensor slice_of(const at::Tensor& full) const { return slice_of(full, shard_); }

  // An update broke off at the end of a step: values are of no step until they are loaded whole.
  void mark_partial(int64_t step) { partial_step_ = step; }
  void mark_complete() { partial_step_ = -1; }
  // Why partially updated values are rejected; "" when they are not.
  std::string why_partial() const;
  void check_complete() const;

  // The gradient of a BF16 parameter in F32, where a reducer keeps it so: .grad is empty then but
  // during a backward pass, whose gradient is added to this. Undefined when there is none.
  at::Tensor& main_grad() { return main_grad_; }
  bool has_main_grad() const { return main_grad_.defined(); }
  // A reducer keeps the gradient in F32 though the parameter is of BF16.
  bool has_wide_gradient() const { return has_wide_gradient_; }
  void set_wide_gradient(bool wide) { has_wide_gradient_ = wide; }
  // The gradient, wherever it is kept; undefined when there is none.
  const at::Tensor& gradient() const { return main_grad_.defined() ? main_grad_ : tensor().grad(); }
  void forget_gradient();

  GradientHooks& hooks() { return hooks_; }
  const GradientHooks& hooks() const { return hooks_; }
  Attachment& attachment() { return attachment_; }

 private:
  at::Tensor slice_of(const at::Tensor& full, const ShardSpec& shard) const;
  uint64_t tensor_version() const { return static_cast<uint64_t>(tensor()._version()); }
  // The tensor is another from now on, of the same values or of others.
  void replace_tensor(at::Tensor value);
  void replace_value(at::Tensor value);
  // Gives a parameter on the meta device a value, which comes from the CPU.
  void give_value(at::Tensor value);
  // The initial values of a shard of this parameter.
  at::Tensor draw(const ShardSpec& shard) const;
  void draw_initial_full();

  std::string canonical_name_;
  ShardSpec shard_;
  Initializer initializer_;
  uint64_t seed_ = 0;
  GroupOfShards shard_group_;
  std::shared_ptr<ProcessGroup> gradient_group_;
  bool counts_in_norm_ = true, keeps_initial_full_ = false;
  bool is_cut_ = false, is_elsewhere_ = false, has_wide_gradient_ = false;
  int64_t partial_step_ = -1;
  std::atomic<int> trainers_ = 0;  // a binding may end one on another thread
  uint64_t carried_versions_ = 0;  // beside that of the tensor; it may be less than 0, modulo 2^64
  at::Device home_;                // where a value lies that comes after the meta device
  at::Tensor tensor_, main_grad_, initial_full_;
  Attachment attachment_;
  // Last: a caller's data go while all else is there.
  InitialValues initial_values_;
  GradientHooks hooks_{*this};
};

}  // namespace nxd
