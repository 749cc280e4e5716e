#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/process_group.h"
#include "core/layout/shard_spec.h"
#include "core/optim/dense_order.h"

namespace nxd {

// Properties of a parameter that do not change while it is optimized.
struct ParameterInfo {
  std::string name;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  nxd_dtype_t grad_dtype = NXD_DTYPE_F32;
  // Which part of the whole parameter this rank has, with dimensions as they lie in memory.
  ShardSpec shard = ShardSpec::replicated({});
  // Ranks whose gradients of this very shard are partial, beside data-parallel ones; or null.
  std::shared_ptr<ProcessGroup> gradient_group;
  // One of the ranks that hold the same elements counts them in norms.
  bool counts_in_norm = true;
  // Each tensor-parallel rank has all of it, and the first one counts it: that of the layout of
  // now, which may be younger than the parameter.
  bool is_whole = false;
  DenseOrder order{};               // in which dimensions lie in memory
  std::optional<ShardSpec> in_c{};  // the shard in C order, where that is another

  int64_t count() const { return shard.local_size(); }
  // The part as files have it.
  const ShardSpec& stored() const { return in_c ? *in_c : shard; }
};

// The present place of a parameter: dense, in its order.
struct ParameterBuffers {
  void* value = nullptr;
  void* grad = nullptr;  // null: no gradient on this rank
};

// The groups that gradients, norms and options are agreed over. A group that is null has one rank.
struct OptimizerGroups {
  std::shared_ptr<ProcessGroup> tensor, data, pipeline;
  int world_rank = 0;
  // All ranks, where the others are the axes of a layout that span it; else null. One call over it
  // then takes the place of one over each.
  std::shared_ptr<ProcessGroup> world;
  // With it: the world's ranks by (pipeline, data, tensor), the last one fastest.
  std::vector<int> ranks_by_place;

  // Groups that together join all ranks.
  std::vector<ProcessGroup*> all() const;
};

class Context;
class ParallelState;
// The groups of a layout; none for null.
OptimizerGroups groups_of_layout(const Context& context, const ParallelState* layout);

// True on the rank that counts the parameter in norms.
bool counts_in_norm(const ParameterInfo& info, const OptimizerGroups& groups);

class StepRecorder;

// Parameters that are optimized: a module tree's, or a caller's buffers. Values and gradients may
// move between calls, so code that works on them asks anew.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  virtual size_t size() const = 0;
  virtual const ParameterInfo& info(size_t index) const = 0;
  // INVALID_STATE when the parameter has no values, or is not in its order.
  virtual ParameterBuffers buffers(size_t index) = 0;
  // That of buffers(), whatever the gradient is.
  virtual const void* value(size_t index) { return buffers(index).value; }
  // The same as whether buffers() has a gradient, without its values.
  virtual bool has_gradient(size_t index) { return buffers(index).grad != nullptr; }
  // For parameters whose values are not known before a graph has run; null for all others. It
  // refers to this.
  virtual std::unique_ptr<StepRecorder> make_step_recorder();
  // See BucketPlan::Parts. The same on all ranks.
  virtual bool wants_parts_alike() const { return false; }
  // Gives a parameter that has no gradient one: zeros, or what lies in its bucket where
  // gradients are views of a reducer's buckets.
  virtual void make_zero_gradient(size_t index) = 0;
  // The value was written by other means than its owner's.
  virtual void value_changed(size_t index) = 0;
  // Another number after each write of the value, whoever writes: a master copy that was made, or
  // updated, at another number is stale.
  virtual uint64_t value_version(size_t index) = 0;

  // An update of the value broke off: it is of no step until it is loaded again.
  virtual void mark_partial(size_t index) = 0;
  // Why values are rejected that are partially updated; "" when none are.
  virtual std::string why_partial() const = 0;

  // Differs where the names, or their order, do.
  uint32_t names_digest() const;
  // Differs where the options do of the layers that these are the parameters of, as far as they are
  // known.
  virtual uint32_t options_digest() const { return 0; }
  // The mode of the last forwards with gradients of the layers that depend on it, as far as they
  // are known: 0 for evaluation, 1 for training, 2 for both. Nothing where there were none.
  virtual std::optional<int> mode_of_forwards() const { return std::nullopt; }
  // Names of all parameters of the model that these are a stage's of; these names where they are
  // all there are. Nothing when other stages' are not known.
  virtual std::optional<std::vector<std::string>> names_of_model() const;

  // Why gradients cannot be clipped: other ranks have parameters of the same model that are in none
  // of these groups, so that the norm is not theirs. "" where they can.
  virtual std::string why_no_clipping() const { return ""; }
  // Why there is no file of the model's states, for the same reason. "" where there is.
  virtual std::string why_no_file() const { return ""; }
  // Why the groups are not those that the shards are parts over, so that their ranks have no norm
  // and no file of them, and no copies to reduce over. "" where they are.
  virtual std::string why_other_layout() const { return ""; }

  virtual const OptimizerGroups& groups() const = 0;
  // The plain forms of kernels are asked for.
  virtual bool plain_kernels() const = 0;
  // Random bits depend on these, beside names and places.
  virtual uint64_t seed() const = 0;
  virtual int64_t step() const = 0;
  virtual void advance_step() = 0;
  // INVALID_STATE when whatever the parameters belong to has come to its end.
  virtual void check_usable() const = 0;
  // Why gradients are not to be finished, or updated with, by way of this source, such as that a
  // ddp has them; "" where they are. Ranks may differ in it.
  virtual std::string why_reduced_elsewhere() const { return ""; }

 private:
  mutable std::optional<uint32_t> names_digest_;
};

}  // namespace nxd
