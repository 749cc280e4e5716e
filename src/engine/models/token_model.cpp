#include "engine/models/token_model.h"

#include <ATen/ATen.h>

#include "engine/ops/collectives.h"

namespace nxd {

TokenModel::TokenModel(const LayerContext& at, const char* class_name, const ModelSizes& sizes)
    : Model(at.context, class_name),
      group_(at.group()),
      sequence_parallel_(at.sequence_parallel),
      sizes_(sizes) {}

void TokenModel::check_divides(const char* field, int64_t value) const {
  check_argument(value % group_->size() == 0, "config_json: ", field, ": ", value,
                 " does not divide by the ", group_->size(), " ranks of group ", group_->name());
}

void TokenModel::check(bool holds, const std::string& message) const {
  check_with_group(*group_, holds, class_name().c_str(), message);
}

void TokenModel::check_ids(const at::Tensor& ids) const {
  check(ids.dim() == 2 && ids.scalar_type() == at::kLong,
        text("ids: expected [batch, sequence] of dtype i64, got ", c10::toString(ids.scalar_type()),
             " of shape ", ids.sizes()));
  check(ids.numel() > 0, text("ids: expected at least one token, got shape ", ids.sizes()));
  const int64_t sequence = ids.size(1);
  check(sizes_.positions == 0 || sequence <= sizes_.positions,
        text("ids: expected at most ", sizes_.positions, " positions, got ", sequence));
  check(!sequence_parallel_ || sequence % group_->size() == 0,
        text("ids: with sequence_parallel the sequence must divide by the ", group_->size(),
             " ranks of group ", group_->name(), ", got ", sequence));
}

void TokenModel::check_like_ids(const char* name, const at::Tensor& input,
                                const at::Tensor& ids) const {
  check(!input.defined() || (input.sizes() == ids.sizes() && input.scalar_type() == at::kLong),
        input.defined()
            ? text(name, ": expected dtype i64 and the shape of the ids, ", ids.sizes(), ", got ",
                   c10::toString(input.scalar_type()), " of shape ", input.sizes())
            : std::string());
}

}  // namespace nxd
