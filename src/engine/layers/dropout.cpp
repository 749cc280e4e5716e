#include "engine/layers/dropout.h"

#include <ATen/ATen.h>

#include <bit>
#include <functional>
#include <string>
#include <utility>

#include "core/base/exact_number.h"
#include "core/layout/random_rows.h"
#include "core/tensor_parallel/dropout_mask.h"
#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"
#include "engine/layers/layer_support.h"
#include "engine/ops/compute.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

// The site is no part of the graph: each step draws other bits.
RecordedCall recorded_draw(const char* name, const std::function<at::Tensor()>& draw,
                           at::IntArrayRef sizes, at::ScalarType dtype) {
  RecordedCall call{name};
  call.results = {at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta))};
  call.function = [draw](const std::vector<at::Tensor>&) {
    return std::vector<at::Tensor>{draw()};
  };
  return call;
}

// 1 for each element of a part that is kept, else 0.
at::Tensor draw_mask(const RandomSite& site, const ShardSpec& shard, at::IntArrayRef part,
                     double keep) {
  at::Tensor mask = pooled_empty(part, at::kByte);
  draw_kept(site, shard, keep, mask.data_ptr<uint8_t>());
  return mask;
}

// A program draws the bits itself, by numbers that it takes as an input.
at::Tensor recorded_mask(const RandomSite& site, const ShardSpec& shard, at::IntArrayRef part,
                         double keep) {
  RecordedCall call = recorded_draw(
      "nxd::keep_mask",
      [site, shard, part = part.vec(), keep] { return draw_mask(site, shard, part, keep); }, part,
      at::kByte);
  call.attributes = text("probability ", keep);
  const std::optional<RandomRows> rows = RandomRows::of(shard);
  if (!rows) return record_call(std::move(call), {})[0];
  constexpr int64_t kWordsOfBlock = 4;
  call.attributes +=
      text(", bound ", RandomSite::bernoulli_bound(keep), ", ", rows->code(kWordsOfBlock));
  return device_tensor(
      record_values(std::move(call), {vector_on_device(rows->numbers(site, kWordsOfBlock))})[0]);
}

}  // namespace

Dropout::Dropout(const LayerContext& at, double p, int shard_dim, bool transposed)
    : Module(at.context, "Dropout"),
      p_(p),
      site_(at.path),
      shard_dim_(shard_dim),
      transposed_(transposed) {
  check_argument(p >= 0 && p < 1, "p: expected a probability from 0 to below 1, got ",
                 exact_number(p));
  check_argument(shard_dim >= -1, "shard_dim: expected a dimension, or -1 for none, got ",
                 shard_dim);
  note_options(p);
  if (shard_dim >= 0) at.group();  // fails here rather than in forward
}

Module::Tensors Dropout::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1);
  const at::Tensor& x = inputs[0];
  check_argument(x.is_floating_point(), "Dropout: input: expected a float dtype, got ",
                 dtype_text(x.scalar_type()));
  check_argument(shard_dim_ < x.dim(), "Dropout: input: expected more than ", shard_dim_,
                 " dimensions, as shard_dim is ", shard_dim_, ", got shape ", x.sizes());
  if (!drops()) return {x};
  if (x.is_meta()) return {x * 1.0};
  const at::ScalarType dtype = x.scalar_type(), wide = partial_sum_dtype(dtype);
  if (wide == dtype) return {x * factors(x.sizes(), x.options())};
  // Rounded to 16 bits the factor would be off for all elements alike.
  return {((x * kept(x.sizes(), x.options())).to(wide) * scale()).to(dtype)};
}

bool Dropout::drops() {
  if (p_ == 0) return false;
  note_modes({.evaluation = !training(), .training = training()});
  return training();
}

ShardSpec Dropout::shard_of(std::vector<int64_t> part) const {
  const GroupRef group = shard_dim_ >= 0 ? tensor_group(*context()) : nullptr;
  if (!share_) {
    return dropout_shard(std::move(part), shard_dim_, group ? group->rank() : 0,
                         group ? group->size() : 1);
  }
  part[static_cast<size_t>(shard_dim_)] = share_->extent;
  return ShardSpec::ranges(std::move(part), shard_dim_, {share_->own}, share_->extent);
}

at::Tensor Dropout::site_words(const at::TensorOptions& options) const {
  const auto draw = [site = dropout_site_of_now(*context(), site_)] { return site_words_of(site); };
  if (options.device().is_cpu()) return draw();
  return record_call(recorded_draw("nxd::dropout_site", draw, {2}, at::kLong), {})[0];
}

at::Tensor Dropout::factors(at::IntArrayRef sizes, const at::TensorOptions& options) const {
  return kept(sizes, options) * scale();
}

at::Tensor Dropout::kept(at::IntArrayRef sizes, const at::TensorOptions& options) const {
  std::vector<int64_t> numbered = sizes.vec();
  if (transposed_) std::swap(numbered[0], numbered[1]);
  const RandomSite site = dropout_site_of_now(*context(), site_);
  const auto mask_by = options.device().is_cpu() ? draw_mask : recorded_mask;
  at::Tensor mask = mask_by(site, shard_of(numbered), numbered, keep_probability());
  if (transposed_) mask = mask.transpose(0, 1);
  return mask.to(c10::typeMetaToScalarType(options.dtype()));
}

RandomSite dropout_site_of_now(const Context& context, const std::string& name) {
  return dropout_site(context.seed(), name).at(context.step(), context.microbatch());
}

at::Tensor site_words_of(const RandomSite& site) {
  const at::Tensor words = at::empty({2}, at::kLong);
  words.data_ptr<int64_t>()[0] = std::bit_cast<int64_t>(site.key());
  words.data_ptr<int64_t>()[1] = std::bit_cast<int64_t>(site.draw());
  return words;
}

at::Tensor dropout_factors(const RandomSite& site, std::vector<int64_t> sizes, double p,
                           const at::TensorOptions& options) {
  const at::TensorOptions plain = options.requires_grad(false);
  if (p == 1) return at::zeros(sizes, plain);
  const auto mask_by = options.device().is_cpu() ? draw_mask : recorded_mask;
  const at::Tensor mask = mask_by(site, dropout_shard(sizes, -1, 0, 1), sizes, 1 - p);
  return mask.to(c10::typeMetaToScalarType(options.dtype())) * (1 / (1 - p));
}

std::shared_ptr<Dropout> add_activation_dropout(Module& parent, const LayerContext& at,
                                                const std::string& name, double p) {
  // The sequence comes first, so that its length is no part of an element's number: places that pad
  // a sequence change nothing for the others.
  const bool slices = at.sequence_parallel;
  return add_layer<Dropout>(parent, at, name, p, slices ? 0 : -1, /*transposed=*/!slices);
}

}  // namespace nxd
