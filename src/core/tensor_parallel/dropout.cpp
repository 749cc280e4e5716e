#include "core/tensor_parallel/dropout.h"

#include <utility>

#include "core/base/exact_number.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/array_overlap.h"
#include "core/tensor_parallel/dropout_mask.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

RandomSite dropout_site(const Context& context, const std::string& name,
                        const std::optional<RandomPosition>& position) {
  check_argument(!name.empty(), "name: expected the name of a layer, got \"\"");
  const auto [step, microbatch] =
      position.value_or(RandomPosition{context.step(), context.microbatch()});
  check_argument(step >= 0 && microbatch >= 0, "step, microbatch: expected 0 or more, got ", step,
                 " and ", microbatch);
  return dropout_site(context.seed(), name).at(step, microbatch);
}

DropoutPlan::DropoutPlan(const ProcessGroup& group, const RandomSite& site, bool backward,
                         const Array& in, const Array& out, const DropoutOptions& options)
    : group_(group),
      site_(site),
      backward_(backward),
      names_(backward ? Names{"grad_y", "grad_x"} : Names{"x", "y"}),
      in_(in),
      out_(out),
      options_(options),
      shard_dim_(-1),
      mask_block_(scratch_.reserve(in.count(), 1, NXD_DTYPE_U8, Scratch::Use::kOwn)) {
  check_float(in_, names_.in);
  check_same_dtype(out_, names_.out, in_.dtype, names_.in);
  check_shape(out_, names_.out, in_.shape);
  check_argument(options_.p >= 0 && options_.p < 1,
                 "p: expected a probability from 0 to below 1, got ", exact_number(options_.p));
  if (options_.shard_dim) shard_dim_ = checked_dim(*options_.shard_dim, in_.dims(), "shard_dim");
  check_argument(!options_.transposed || in_.dims() >= 2,
                 "transposed: expected at least 2 dimensions, got the shape ",
                 shape_text(in_.shape));
  check_memory();
}

void DropoutPlan::check_memory() const {
  CallMemory memory;
  if (!is_same_array(in_, out_)) memory.add_input(in_, names_.in);
  memory.add_output(out_, names_.out);
  memory.check(options_.workspace);
}

void DropoutPlan::propose(Proposal& proposal, const DropoutPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const DropoutPlan&;
  same("operation (12, 13: dropout, forward and backward)",
       [](Plan p) { return p.backward_ ? 13 : 12; });
  proposal.same_dtype("dtype", plan ? plan->in_.dtype : NXD_DTYPE_F32);
  same("number of elements", [](Plan p) { return p.in_.count(); });
  same("p", [](Plan p) { return p.options_.p; });
  same("shard_dim (-1: none)", [](Plan p) { return p.shard_dim_; });
  same("size of shard_dim", [](Plan p) { return p.shard_dim_ < 0 ? 0 : p.in_.size(p.shard_dim_); });
  same("transposed", [](Plan p) { return p.options_.transposed; });
  proposal.same_digest("digest of the shape", plan ? digest_of(plan->in_.shape) : 0);
  const auto folded = [](uint64_t bits) { return static_cast<uint32_t>(bits ^ (bits >> 32)); };
  proposal.same_digest("digest of seed and name",
                       plan ? plan->site_.key()[0] ^ plan->site_.key()[1] : 0);
  proposal.same_digest("digest of step and microbatch", plan ? folded(plan->site_.draw()) : 0);
}

Array::Shape DropoutPlan::numbered_shape() const {
  Array::Shape shape = in_.shape;
  if (options_.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

int DropoutPlan::numbered_dim() const {
  const bool moves = options_.transposed && (shard_dim_ == 0 || shard_dim_ == 1);
  return moves ? 1 - shard_dim_ : shard_dim_;
}

Array DropoutPlan::mask() const {
  Array mask = Array::dense(NXD_DTYPE_U8, numbered_shape(), scratch_.at(mask_block_));
  if (options_.transposed) {
    std::swap(mask.shape[0], mask.shape[1]);
    std::swap(mask.strides[0], mask.strides[1]);
  }
  return mask;
}

void DropoutPlan::run(GroupCalls&) const {
  const Array mask = this->mask();
  const double keep = 1.0 - options_.p;
  draw_kept(site_, dropout_shard(numbered_shape(), numbered_dim(), group_.rank(), group_.size()),
            keep, reinterpret_cast<uint8_t*>(mask.data));
  kernels::scale_kept(in_.rows(), mask.rows(), 1.0 / keep, out_.rows());
}

}  // namespace nxd
