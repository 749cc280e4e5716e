#include "engine/models/token_model.h"

#include <ATen/ATen.h>

#include "engine/functional/cross_entropy.h"
#include "engine/layers/head_projection.h"
#include "engine/layers/sequence_padding.h"
#include "engine/ops/collectives.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {

void check_token_ids(const Module& module, const at::Tensor& ids) {
  const std::string& name = module.class_name();
  check_with_peers(*module.context(), name.c_str(), [&] {
    check_argument(ids.dim() == 2 && ids.scalar_type() == at::kLong, name,
                   ": ids: expected [batch, sequence] of dtype i64, got ",
                   dtype_text(ids.scalar_type()), " of shape ", ids.sizes());
  });
}

TokenModel::TokenModel(const LayerContext& at, const char* class_name, const ModelSizes& sizes)
    : Model(at.context, class_name),
      group_(at.group()),
      sequence_parallel_(at.sequence_parallel),
      sizes_(sizes) {}

void TokenModel::check_enough(const char* field, int64_t value) const {
  check_argument(value >= group_->size(), "config_json: ", field, ": expected at least the ",
                 group_->size(), " ranks of group ", group_->name(), ", got ", value);
}

void TokenModel::check_heads(const char* field) const {
  const int64_t fewest = fewest_heads(sizes_.kv_heads, group_->size());
  check_argument(sizes_.heads >= fewest, "config_json: ", field, ": expected at least ", fewest,
                 " with ", sizes_.kv_heads, " key heads and ", group_->size(), " ranks of group ",
                 group_->name(), ", got ", sizes_.heads);
}

void TokenModel::check(bool holds, const std::string& message) const {
  check_with_group(*group_, holds, class_name().c_str(), message);
}

void TokenModel::check_ids(const at::Tensor& ids) const {
  check_token_ids(*this, ids);
  check(ids.numel() > 0, text("ids: expected at least one token, got shape ", ids.sizes()));
  const int64_t sequence = ids.size(1);
  check(sizes_.positions == 0 || sequence <= sizes_.positions,
        text("ids: expected at most ", sizes_.positions, " positions, got ", sequence));
}

void TokenModel::check_like_ids(const char* name, const at::Tensor& input,
                                const at::Tensor& ids) const {
  check(!input.defined() || (input.sizes() == ids.sizes() && input.scalar_type() == at::kLong),
        input.defined()
            ? text(name, ": expected dtype i64 and the shape of the ids, ", ids.sizes(), ", got ",
                   dtype_text(input.scalar_type()), " of shape ", input.sizes())
            : std::string());
}

void TokenModel::check_mask(const at::Tensor& mask, const at::Tensor& ids) const {
  check(!mask.defined() || mask.sizes() == ids.sizes(),
        mask.defined()
            ? text("key mask: expected the shape of the ids, ", ids.sizes(), ", got ", mask.sizes())
            : std::string());
}

int64_t TokenModel::padding_of(const at::Tensor& ids) const {
  return sequence_parallel_ ? SequencePadding::lacking(*group_, ids.size(1)) : 0;
}

at::Tensor TokenModel::mask_of(const at::Tensor& given, const at::Tensor& ids) const {
  return given.defined() || padding_of(ids) == 0 ? given : at::ones_like(ids);
}

at::Tensor TokenModel::padded_labels(const at::Tensor& labels, int64_t places) const {
  if (places == 0) return sequence_parallel_ ? labels.t() : labels;
  return at::constant_pad_nd(labels, {0, places}, LossFormula().ignore_index).t();
}

at::Tensor TokenModel::real_logits(const at::Tensor& logits, int64_t places) const {
  if (!sequence_parallel_) return logits;
  const at::Tensor real = places == 0 ? logits : logits.narrow(0, 0, logits.size(0) - places);
  return real.transpose(0, 1);
}

}  // namespace nxd
