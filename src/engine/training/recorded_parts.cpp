// The nodes of a parameter's sharded update, where ranks have parts that are alike:
//   nxd::padded_elements    of the gradient, and of the values: zeros up to parts of one size
//   nxd::scatter_gradients  this rank's part of the ranks' sum or mean
//   nxd::part_at            this rank's part of the values, by its number
//   (the update)
//   nxd::gather_parameters  the parts of all ranks
//   nxd::put_parameters     these, as the parameter's values
// Collectives take and give one flat tensor, as those of a compiler do.
#include "engine/training/recorded_parts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/comm/take_for_call.h"
#include "engine/device/recorder.h"
#include "engine/ops/part_at.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

at::Tensor flat_meta(at::ScalarType dtype, int64_t elements) {
  return at::empty({elements}, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

DeviceValuePtr padded_elements(const DeviceValuePtr& value, int64_t size) {
  RecordedCall call{"nxd::padded_elements"};
  call.results = {flat_meta(value->meta.scalar_type(), size)};
  call.function = [size](const std::vector<at::Tensor>& in) {
    const at::Tensor dense = in[0].contiguous();
    at::Tensor out = at::zeros({size}, dense.options());
    std::memcpy(out.data_ptr(), dense.data_ptr(), dense.nbytes());
    return std::vector<at::Tensor>{out};
  };
  return record_values(std::move(call), {value})[0];
}

}  // namespace

RecordedParts::RecordedParts(const BucketPlan& plan, size_t bucket,
                             std::shared_ptr<ProcessGroup> ranks)
    : group_(std::move(ranks)),
      parameter_(plan.buckets()[bucket].items[0].parameter),
      count_(plan.buckets()[bucket].used),
      part_(plan.part_size(bucket)) {}

int64_t RecordedParts::begin() const { return std::min(group_->rank() * part_, count_); }

DeviceValuePtr RecordedParts::scatter(const DeviceValuePtr& gradient, nxd_reduce_t reduce) const {
  RecordedCall call{"nxd::scatter_gradients"};
  call.attributes = text("group ", group_->name(), ", reduce ", reduce);
  call.is_effect = true;
  call.results = {flat_meta(gradient->meta.scalar_type(), part_)};
  call.exchanges = {exchange_over(group_, RecordedExchange::Kind::kReduceScatter, reduce)};
  call.function = [group = group_, part = part_, reduce](const std::vector<at::Tensor>& in) {
    const at::ScalarType dtype = in[0].scalar_type();
    at::Tensor out;
    take_for_call(group.get(), "reduce_scatter",
                  [&] { out = exchanged_empty(*group, {part}, dtype); });
    group->run({Operation::kReduceScatter, in[0].data_ptr(), out.data_ptr(),
                static_cast<size_t>(part), to_nxd_dtype(dtype), reduce});
    return std::vector<at::Tensor>{out};
  };
  return record_values(std::move(call), {padded_elements(gradient, part_ * group_->size())})[0];
}

DeviceValuePtr RecordedParts::own_part(const DeviceValuePtr& values) const {
  return record_part_at(padded_elements(values, part_ * group_->size()), 0, group_->rank(), part_);
}

DeviceValuePtr RecordedParts::gather(const DeviceValuePtr& part,
                                     const DeviceValuePtr& values) const {
  RecordedCall call{"nxd::gather_parameters"};
  call.attributes = text("group ", group_->name());
  call.is_effect = true;
  call.results = {flat_meta(part->meta.scalar_type(), part_ * group_->size())};
  call.exchanges = {exchange_over(group_, RecordedExchange::Kind::kAllGather)};
  call.function = [group = group_, size = part_](const std::vector<at::Tensor>& in) {
    const at::ScalarType dtype = in[0].scalar_type();
    at::Tensor own, out;
    take_for_call(group.get(), "all_gather", [&] {
      own = in[0].contiguous();
      out = exchanged_empty(*group, {size * group->size()}, dtype);
    });
    group->run(Call::all_gather(own.data_ptr(), out.data_ptr(), static_cast<size_t>(size),
                                to_nxd_dtype(dtype)));
    return std::vector<at::Tensor>{out};
  };
  const DeviceValues parts = record_values(std::move(call), {part});
  RecordedCall put{"nxd::put_parameters"};
  put.results = {values->meta};
  put.overwrites = {1};
  put.function = [](const std::vector<at::Tensor>& in) {
    std::memcpy(in[1].data_ptr(), in[0].data_ptr(), in[1].nbytes());
    return std::vector<at::Tensor>{in[1]};
  };
  return record_values(std::move(put), {parts[0], values})[0];
}

}  // namespace nxd
