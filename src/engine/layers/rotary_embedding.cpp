#include "engine/layers/rotary_embedding.h"

#include <ATen/ATen.h>

#include <bit>

#include "core/base/hash.h"
#include "engine/device/device_tensor.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {

RotaryTables::RotaryTables(const RopeOptions& options, int64_t head_dim)
    : options_(options), head_dim_(head_dim) {
  check_argument(head_dim > 0, "head_dim: expected a positive number, got ", head_dim);
  rope_frequencies(options_, head_dim_, 1);  // rejects bad options here rather than in forward
}

uint32_t RotaryTables::options_digest() const {
  Hash hash;
  for (const double value :
       {options_.theta, options_.factor, options_.low_freq_factor, options_.high_freq_factor,
        options_.beta_fast, options_.beta_slow, options_.attention_factor}) {
    hash.add(std::bit_cast<uint64_t>(value));
  }
  for (const int64_t value :
       {int64_t{options_.type}, options_.rotary_dim, int64_t{options_.truncate},
        options_.original_max_position_embeddings}) {
    hash.add(static_cast<uint64_t>(value));
  }
  return hash.folded();
}

const RotaryTables::Tables& RotaryTables::get(int64_t sequence, const at::Tensor& consumer) {
  const at::ScalarType dtype = consumer.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  // A trace has no values to compute with, and the tables keep theirs. Shapes alone go with shapes.
  const bool is_there = is_recorded(consumer) || (consumer.is_meta() && !is_tracing());
  const at::Device device = is_there ? consumer.device() : at::Device(at::kCPU);
  if (sequence == sequence_ && dtype == dtype_ && device == device_) return tables_;
  const RopeTable frequencies = rope_frequencies(options_, head_dim_, sequence);
  CosSin values = cos_sin(frequencies, 0, sequence);
  const auto tensor = [&](std::vector<double>& data) {
    const at::Tensor table =
        at::from_blob(data.data(), {values.positions, values.width}, at::kDouble);
    return table.to(device, dtype, /*non_blocking=*/false, /*copy=*/true);
  };
  tables_ = {tensor(values.cos), tensor(values.sin)};
  sequence_ = sequence;
  dtype_ = dtype;
  device_ = device;
  return tables_;
}

RotaryEmbedding::RotaryEmbedding(const LayerContext& at, int64_t head_dim,
                                 const RopeOptions& options)
    : Module(at.context, "RotaryEmbedding"), head_dim_(head_dim), tables_(options, head_dim) {
  note_options(tables_.options_digest());
}

Module::Tensors RotaryEmbedding::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1);
  const at::Tensor& x = inputs[0];
  check_argument(x.dim() == 4 && x.size(3) == head_dim_ && x.is_floating_point(), class_name(),
                 ": input: expected floats of shape [batch, sequence, heads, ", head_dim_,
                 "], got ", dtype_text(x.scalar_type()), " of shape ", x.sizes());
  const RotaryTables::Tables& tables = tables_.get(x.size(1), x);
  return {rotate(*context(), SequenceLayout::kBatchFirst, x, tables.cos, tables.sin)};
}

}  // namespace nxd
