#include "core/optim/buffer_parameters.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "core/base/buffer_limit.h"
#include "core/base/dtype.h"
#include "core/base/element_count.h"
#include "core/optim/step_outcome.h"
#include "nxd/dlpack.h"

namespace nxd {
namespace {

using Shape = ShardSpec::Shape;

// INVALID for one that parameters do not have.
nxd_dtype_t dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return NXD_DTYPE_INVALID;
  if (type.code == kDLFloat && type.bits == 32) return NXD_DTYPE_F32;
  if (type.code == kDLFloat && type.bits == 64) return NXD_DTYPE_F64;
  if (type.code == kDLBfloat && type.bits == 16) return NXD_DTYPE_BF16;
  return NXD_DTYPE_INVALID;
}

Shape shape_of(const DLTensor& tensor, const std::string& what) {
  check_argument(tensor.ndim >= 0 && tensor.ndim <= kMostDims, what, ": expected 0 to ", kMostDims,
                 " dimensions, got ", tensor.ndim);
  check_argument(tensor.shape || tensor.ndim == 0, what, ": expected ", tensor.ndim,
                 " sizes, got NULL");
  const Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  for (const int64_t size : shape) {
    check_argument(size >= 0, what, ": expected sizes of at least 0, got ", shape_text(shape));
  }
  return shape;
}

DenseOrder checked_order(const DLTensor& tensor, const Shape& shape, const std::string& what) {
  const std::optional<DenseOrder> order = DenseOrder::of(shape, tensor.strides);
  if (order) return *order;
  const Shape strides(tensor.strides, tensor.strides + tensor.ndim);
  fail(NXD_ERROR_INVALID_ARGUMENT, what,
       ": expected a dense array, in C order or another order of ", "dimensions, got the strides ",
       shape_text(strides), " for the shape ", shape_text(shape));
}

// Address of the first element, once all of the tensor but its dtype has been found good.
void* checked_data(const DLTensor& tensor, const Shape& shape, const std::string& what) {
  check_argument(tensor.device.device_type == kDLCPU, what,
                 ": expected memory of the CPU, got the ", "device type ",
                 static_cast<int>(tensor.device.device_type));
  const size_t element = tensor.dtype.bits / 8;
  const auto most = static_cast<int64_t>(kBufferLimit / element);
  const auto elements = element_count(shape, most);
  check_argument(elements.has_value(), what,
                 ": expected a tensor that fits in memory, got the shape ", shape_text(shape));
  const int64_t count = *elements;
  check_argument(tensor.byte_offset <= kBufferLimit, what,
                 ": expected a byte_offset within memory, got ", tensor.byte_offset);
  if (count == 0) return nullptr;
  check_argument(tensor.data != nullptr, what, ": expected the data of ", count,
                 " elements, got NULL");
  char* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  check_argument(reinterpret_cast<uintptr_t>(data) % element == 0, what,
                 ": expected data aligned to ", element, " bytes, got ", static_cast<void*>(data));
  return data;
}

// The part that a shard is, with dimensions as they lie in memory.
ShardSpec lying_in(const DenseOrder& order, const ShardSpec& in_c) {
  Shape whole = order.in_memory(in_c.shape());
  if (in_c.dim() < 0) return ShardSpec::replicated(std::move(whole));
  int64_t extent = in_c.shape()[static_cast<size_t>(in_c.dim())];
  for (const ShardSpec::Range& range : in_c.ranges()) extent = std::max(extent, range.end);
  return ShardSpec::ranges(std::move(whole), order.place_of(in_c.dim()), in_c.ranges(), extent);
}

// The first of the ranks that hold the same elements counts them.
void finish_placement(ParameterPlacement& placement, const ProcessGroup& tensor,
                      const int32_t* tied, size_t index) {
  placement.counts_in_norm = tensor.rank() % placement.ranks_alike == 0;
  if (tied && flag(tied[index], "tied[", index, "]")) placement.counts_in_norm = false;
}

std::string described(const char* array, size_t index, const std::string& name) {
  return text(array, "[", index, "] (", name, ")");
}

struct Checked {
  Shape shape;
  nxd_dtype_t dtype;
  void* data;
  DenseOrder order;
};

Checked check_param(const DLTensor& tensor, const std::string& what) {
  const nxd_dtype_t dtype = dtype_of(tensor.dtype);
  check_argument(dtype != NXD_DTYPE_INVALID, what, ": expected f32, f64 or bf16, got code ",
                 static_cast<int>(tensor.dtype.code), " with ", static_cast<int>(tensor.dtype.bits),
                 " bits and ", tensor.dtype.lanes, " lanes");
  Shape shape = shape_of(tensor, what);
  void* data = checked_data(tensor, shape, what);
  DenseOrder order = checked_order(tensor, shape, what);
  return {std::move(shape), dtype, data, std::move(order)};
}

Checked check_grad(const DLTensor& tensor, const Shape& shape, const DenseOrder& order,
                   nxd_dtype_t dtype, const std::string& what) {
  Checked grad = check_param(tensor, what);
  check_argument(grad.shape == shape, what, ": expected the parameter's shape ", shape_text(shape),
                 ", got ", shape_text(grad.shape));
  check_argument(grad.order == order, what, ": expected the parameter's order of dimensions in ",
                 "memory", order.is_c() ? ", C order" : "", ", got another");
  const bool wide = dtype == NXD_DTYPE_BF16 && grad.dtype == NXD_DTYPE_F32;
  check_argument(grad.dtype == dtype || wide, what, ": expected the parameter's dtype ",
                 dtype_name(dtype), dtype == NXD_DTYPE_BF16 ? " or f32" : "", ", got ",
                 dtype_name(grad.dtype));
  return grad;
}

}  // namespace

BufferParameters::BufferParameters(std::shared_ptr<Context> context,
                                   std::shared_ptr<ProcessGroup> group, const char* const* names,
                                   DLTensor* const* params, DLTensor* const* grads, size_t n)
    : context_(std::move(context)) {
  groups_.data = std::move(group);
  groups_.world_rank = context_->rank();
  check_count(n, sizeof *params, "params");
  check_argument(params || n == 0, "params: expected an array of ", n, " tensors, got NULL");
  check_argument(grads || n == 0, "grads: expected an array of ", n, " tensors, got NULL");
  std::unordered_set<std::string> known;
  for (size_t i = 0; i < n; ++i) {
    check_argument(!names || names[i], "names[", i, "]: expected a string, got NULL");
    const std::string name = names ? names[i] : std::to_string(i);
    check_argument(!name.empty(), "names[", i, "]: expected a name, got an empty one");
    check_argument(known.insert(name).second, "names[", i, "]: expected each name once, got \"",
                   name, "\" again");
    add(name, params[i], grads[i], i);
  }
  check_memory();
}

// One array that stands for two parameters would be updated twice, and a gradient reduced twice.
void BufferParameters::check_memory() const {
  struct Place {
    const char* begin;
    const char* end;
    const char* array;
    size_t index;
  };
  std::vector<Place> places;
  for (size_t i = 0; i < infos_.size(); ++i) {
    const auto add_place = [&](const void* data, nxd_dtype_t dtype, const char* array) {
      const size_t bytes = static_cast<size_t>(infos_[i].count()) * dtype_size(dtype);
      const auto* begin = static_cast<const char*>(data);
      if (bytes > 0) places.push_back({begin, begin + bytes, array, i});
    };
    add_place(buffers_[i].value, infos_[i].dtype, "params");
    add_place(buffers_[i].grad, infos_[i].grad_dtype, "grads");
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t k = 1; k < places.size(); ++k) {
    const Place &before = places[k - 1], &next = places[k];
    const auto name = [&](const Place& place) {
      return described(place.array, place.index, infos_[place.index].name);
    };
    check_argument(before.end <= next.begin, name(next),
                   ": expected memory of its own, got memory of ", name(before));
  }
}

void BufferParameters::add(const std::string& name, const DLTensor* param, const DLTensor* grad,
                           size_t index) {
  const std::string what = described("params", index, name);
  check_argument(param != nullptr, what, ": expected a tensor, got NULL");
  Checked value = check_param(*param, what);
  const std::string of_grad = described("grads", index, name);
  check_argument(grad != nullptr, of_grad, ": expected a tensor, got NULL");
  const Checked gradient = check_grad(*grad, value.shape, value.order, value.dtype, of_grad);
  ParameterInfo info;
  info.name = name;
  info.dtype = value.dtype;
  info.grad_dtype = gradient.dtype;
  info.shard = ShardSpec::replicated(value.order.in_memory(value.shape));
  if (!value.order.is_c()) info.in_c = ShardSpec::replicated(std::move(value.shape));
  info.order = std::move(value.order);
  infos_.push_back(std::move(info));
  buffers_.push_back({value.data, gradient.data});
  value_versions_.push_back(0);
  partial_steps_.push_back(-1);
}

void BufferParameters::rebind(size_t index, const DLTensor* param, const DLTensor* grad) {
  const ParameterInfo& info = infos_[index];
  const Shape& shape = info.stored().local_shape();
  ParameterBuffers next = buffers_[index];
  if (param) {
    const std::string what = text("param (", info.name, ")");
    const Checked value = check_param(*param, what);
    check_argument(value.shape == shape && value.dtype == info.dtype, what, ": expected ",
                   dtype_name(info.dtype), " ", shape_text(shape), " as before, got ",
                   dtype_name(value.dtype), " ", shape_text(value.shape));
    check_argument(value.order == info.order, what, ": expected the order of dimensions in memory ",
                   "as before, got another");
    next.value = value.data;
  }
  if (grad) {
    const std::string what = text("grad (", info.name, ")");
    const Checked gradient = check_grad(*grad, shape, info.order, info.dtype, what);
    check_argument(gradient.dtype == info.grad_dtype, what, ": expected ",
                   dtype_name(info.grad_dtype), " as before, got ", dtype_name(gradient.dtype));
    next.grad = gradient.data;
  }
  // The values of other memory may be others. A program that rebinds at each step to the same keeps
  // what was derived from them, such as a copy in F32.
  if (next.value != buffers_[index].value) value_changed(index);
  buffers_[index] = next;
}

void BufferParameters::check_placeable(size_t n) const {
  check_state(!stepped_, "expected placements before the first step");
  check_argument(n == size(), "num_params: expected ", size(), ", got ", n);
}

std::vector<ParameterPlacement> BufferParameters::placements(const ProcessGroup& tensor,
                                                             const nxd_placement_t* kinds,
                                                             const int32_t* dims,
                                                             const int32_t* tied, size_t n) const {
  check_placeable(n);
  check_argument(kinds || n == 0, "placements: expected an array of ", n, ", got NULL");
  std::vector<ParameterPlacement> result;
  for (size_t i = 0; i < n; ++i) {
    check_argument(kinds[i] >= NXD_PLACEMENT_SHARDED && kinds[i] <= NXD_PLACEMENT_PARTIAL_GRAD,
                   "placements[", i, "]: expected an NXD_PLACEMENT_*, got ", kinds[i]);
    const Shape& local = infos_[i].stored().local_shape();
    ParameterPlacement placement{ShardSpec::replicated(local)};
    if (kinds[i] == NXD_PLACEMENT_SHARDED) {
      const auto count = static_cast<int>(local.size());
      const int given = dims ? dims[i] : 0, dim = given < 0 ? given + count : given;
      check_argument(dim >= 0 && dim < count, "dims[", i, "]: expected a dimension of ",
                     infos_[i].name, ", which has ", count, ", got ", given);
      Shape whole = local;
      int64_t& extent = whole[static_cast<size_t>(dim)];
      check_argument(!__builtin_mul_overflow(extent, tensor.size(), &extent), "params[", i,
                     "]: expected a size that fits in memory");
      placement.shard = ShardSpec::split(whole, dim, tensor.rank(), tensor.size());
    } else {
      placement.ranks_alike = tensor.size();
      placement.partial_grad = kinds[i] == NXD_PLACEMENT_PARTIAL_GRAD;
    }
    finish_placement(placement, tensor, tied, i);
    result.push_back(std::move(placement));
  }
  return result;
}

std::vector<ParameterPlacement> BufferParameters::placements(
    const ProcessGroup& tensor, const std::vector<ShardOptions>& shards,
    const int32_t* partial_grads, const int32_t* tied, size_t n) const {
  check_placeable(n);
  std::vector<ParameterPlacement> result;
  for (size_t i = 0; i < n; ++i) {
    const Shape& local = infos_[i].stored().local_shape();
    ParameterPlacement placement{ShardSpec::replicated(local)};
    try {
      placement.shard = shard_of(local, shards[i], tensor.rank(), tensor.size());
    } catch (const Error& error) {
      fail(error.status(), "shards[", i, "] (", infos_[i].name, "): ", error.what());
    }
    placement.ranks_alike = ranks_alike(shards[i], tensor.size());
    placement.partial_grad = partial_grads && flag(partial_grads[i], "partial_grads[", i, "]");
    finish_placement(placement, tensor, tied, i);
    result.push_back(std::move(placement));
  }
  return result;
}

// Null where this rank holds its elements alone.
std::shared_ptr<ProcessGroup> BufferParameters::group_of_alike(
    const std::shared_ptr<ProcessGroup>& tensor, int ranks) const {
  if (ranks == tensor->size()) return tensor;
  if (ranks == 1) return nullptr;
  const auto first = tensor->ranks().begin() + tensor->rank() / ranks * ranks;
  return context_->shared_group({first, first + ranks}, "alike");
}

void BufferParameters::place(std::vector<ParameterPlacement> placements,
                             const OptimizerGroups& groups, std::vector<std::string> names) {
  std::vector<std::shared_ptr<ProcessGroup>> of_gradients;
  for (const ParameterPlacement& placement : placements) {
    of_gradients.push_back(
        placement.partial_grad ? group_of_alike(groups.tensor, placement.ranks_alike) : nullptr);
  }
  for (size_t i = 0; i < infos_.size(); ++i) {
    ParameterInfo& info = infos_[i];
    if (info.order.is_c()) {
      info.shard = std::move(placements[i].shard);
    } else {
      info.in_c = std::move(placements[i].shard);
      info.shard = lying_in(info.order, *info.in_c);
    }
    info.counts_in_norm = placements[i].counts_in_norm;
    info.gradient_group = std::move(of_gradients[i]);
  }
  groups_ = groups;
  names_of_model_ = std::move(names);
  placed_ = true;
}

std::optional<std::vector<std::string>> BufferParameters::names_of_model() const {
  return placed_ ? names_of_model_ : ParameterSource::names_of_model();
}

// A group of all ranks has all of every parameter on each; no other rank has others. Else the
// layout's axis along which other ranks have parts that nobody knows of; "" for none.
std::string BufferParameters::unknown_axis() const {
  const auto layout = context_->find_parallel();
  if (placed_ || !layout || groups_.data->size() == context_->size()) return "";
  for (const auto& [axis, name] :
       {std::pair(NXD_AXIS_TENSOR, "tensor"), std::pair(NXD_AXIS_PIPELINE, "pipeline")}) {
    const int size = layout->size(axis);
    if (size > 1)
      return text("a ddp over buffers in a layout of ", size, " ", name, "-parallel ranks");
  }
  return "";
}

std::string BufferParameters::why_no_clipping() const {
  const std::string where = unknown_axis();
  if (where.empty()) return "";
  return text("max_norm: expected 0 for ", where, ": the norm of its group ", groups_.data->name(),
              " is not that of the model; say which parameters are parts by "
              "nxd_ddp_set_placements or nxd_ddp_set_shards");
}

std::string BufferParameters::why_no_file() const {
  const std::string where = unknown_axis();
  if (where.empty()) return "";
  return text("the state of ", where, ": one file has the whole model's, and its group ",
              groups_.data->name(),
              " has a part of it; say which parameters are parts by "
              "nxd_ddp_set_placements or nxd_ddp_set_shards");
}

std::string BufferParameters::why_partial() const {
  for (size_t i = 0; i < partial_steps_.size(); ++i) {
    if (partial_steps_[i] >= 0) return partial_text(infos_[i].name, partial_steps_[i]);
  }
  return "";
}

// Whatever was derived from the old values, such as a copy in F32, is stale too.
void BufferParameters::mark_reloaded() {
  std::fill(partial_steps_.begin(), partial_steps_.end(), -1);
  for (size_t i = 0; i < size(); ++i) value_changed(i);
}

void BufferParameters::advance_step() {
  stepped_ = true;
  context_->set_step(context_->step() + 1, 0);
}

void BufferParameters::make_zero_gradient(size_t index) {
  const ParameterInfo& info = infos_[index];
  if (info.count() == 0) return;
  std::memset(buffers_[index].grad, 0,
              static_cast<size_t>(info.count()) * dtype_size(info.grad_dtype));
}

}  // namespace nxd
