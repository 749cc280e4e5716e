#include "engine/module/parameter.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/optim/step_outcome.h"
#include "engine/device/device_tensor.h"
#include "engine/dtype.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

// Elements that a caller's function is asked for at once.
constexpr int64_t kInitialPiece = 16384;

// dtype: of the parameter, which may be narrower than what is drawn.
template <class T>
void fill_by(const InitialValues& values, const std::string& name, const ShardSpec& shard,
             nxd_dtype_t dtype, T* out) {
  const double largest = dtype_largest(dtype);
  if (shard.has_padding()) std::fill_n(out, shard.local_size(), T{0});
  std::vector<double> room;
  shard.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    for (int64_t done = 0; done < count; done += kInitialPiece) {
      room.assign(static_cast<size_t>(std::min(kInitialPiece, count - done)), 0.0);
      values(name, shard.shape(), global + done, room.data(), room.size());
      for (size_t i = 0; i < room.size(); ++i) {
        const int64_t place = done + static_cast<int64_t>(i);
        check_argument(!std::isfinite(room[i]) || std::abs(room[i]) <= largest, "parameter ", name,
                       ": initial value of element ", global + place, ": expected one that ",
                       dtype_name(dtype), " has, got ", room[i]);
        out[local + place] = static_cast<T>(room[i]);
      }
    }
  });
}

// Rejects gradients of a tensor that the parameter no longer has: they would be lost.
struct ReplacedTensor : torch::autograd::FunctionPreHook {
  explicit ReplacedTensor(std::string parameter) : parameter_(std::move(parameter)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list&) override {
    fail(NXD_ERROR_INVALID_STATE, "backward: parameter ", parameter_,
         " was cast, moved or padded since the forward; its gradient has no place");
  }

  const std::string parameter_;
};

// A graph that ends at the tensor keeps the accumulator; without one there is none.
void reject_gradients(const at::Tensor& replaced, const std::string& parameter) {
  if (const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(replaced)) {
    accumulator->add_pre_hook(std::make_unique<ReplacedTensor>(parameter));
  }
}

}  // namespace

at::ScalarType parameter_scalar_type(nxd_dtype_t dtype) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype == NXD_DTYPE_BF16,
                 "dtype: expected F32, F64 or BF16 for parameters, got ", dtype_name(dtype));
  return to_scalar_type(dtype);
}

Parameter::Parameter(std::string canonical_name, ShardSpec shard, Initializer initializer,
                     at::ScalarType dtype, at::Device device, at::Device home)
    : canonical_name_(std::move(canonical_name)),
      shard_(std::move(shard)),
      initializer_(initializer),
      home_(home) {
  at::NoGradGuard no_grad;
  if (device.is_meta()) {
    tensor_ = at::empty(shard_.local_shape(), at::TensorOptions().dtype(dtype).device(device));
  } else {
    tensor_ = pooled_empty(shard_.local_shape(), dtype);
    if (!device.is_cpu()) tensor_ = on_recorded_device(std::move(tensor_));
  }
  tensor_.set_requires_grad(true);
}

at::Tensor Parameter::draw(const ShardSpec& shard) const {
  const at::ScalarType dtype = tensor().scalar_type();
  at::Tensor out = pooled_empty(shard.local_shape(), dtype == at::kDouble ? dtype : at::kFloat);
  const InitialValues values = initial_values_;  // its own call may replace it
  if (!values) {
    initializer_.check_range("parameter " + canonical_name_, to_nxd_dtype(dtype));
    initializer_.fill(RandomSite(seed_, canonical_name_), shard, to_nxd_dtype(out.scalar_type()),
                      out.data_ptr());
  } else if (dtype == at::kDouble) {
    fill_by(values, canonical_name_, shard, to_nxd_dtype(dtype), out.data_ptr<double>());
  } else {
    fill_by(values, canonical_name_, shard, to_nxd_dtype(dtype), out.data_ptr<float>());
  }
  return out.scalar_type() == dtype ? out : pooled_empty(out.sizes(), dtype).copy_(out);
}

void Parameter::initialize(uint64_t seed, const std::string& canonical_name) {
  const std::string name_before = canonical_name_;
  canonical_name_ = canonical_name;  // perhaps its own
  const uint64_t seed_before = std::exchange(seed_, seed);
  at::Tensor value, full;
  try {
    if (has_value()) value = draw(shard_);
    if (value.defined() && keeps_initial_full_) full = draw(ShardSpec::replicated(shard_.shape()));
    if (value.defined()) set_value(std::move(value));
  } catch (...) {
    canonical_name_ = name_before;
    seed_ = seed_before;
    throw;
  }
  initial_full_ = std::move(full);
}

void Parameter::materialize() {
  if (has_value() || is_elsewhere_) return;
  give_value(draw(shard_));
  if (keeps_initial_full_) draw_initial_full();
}

void Parameter::materialize(const std::function<void(at::Tensor& value)>& fill) {
  if (has_value() || is_elsewhere_) return;
  const at::NoGradGuard no_grad;
  at::Tensor value = pooled_empty(shard_.local_shape(), tensor().scalar_type());
  fill(value);
  if (!has_value()) give_value(std::move(value));  // fill may have given one by other means
}

void Parameter::check_movable() const {
  check_state(!hooks_.has_reducer(), "parameter ", canonical_name_,
              ": a ddp has its values or gradients; destroy that one, and its optimizers, first");
}

void Parameter::check_uncut(const char* call) const {
  check_state(!is_cut_, call, ": parameter ", canonical_name_,
              " is of a model that nxd_pp_create has cut; call it before nxd_pp_create");
}

void Parameter::check_untrained(const char* call) const {
  check_state(trainers_ == 0, call, ": parameter ", canonical_name_,
              " has a state in an optimizer, or a place in a ddp, which files name it by; call it "
              "before these are made, or destroy them first");
}

void Parameter::move_to(at::Device device) {
  if (device.is_meta()) return release();
  const at::Device home_before = std::exchange(home_, device);
  try {
    if (!has_value()) materialize();
  } catch (...) {
    home_ = home_before;
    throw;
  }
  if (!has_value() || tensor().device() == device) return;
  check_movable();
  const at::NoGradGuard no_grad;
  const auto moved = [&](const at::Tensor& x) { return x.defined() ? x.to(device) : x; };
  at::Tensor grad = moved(tensor().grad()), main_grad = moved(main_grad_);
  const uint64_t before = version();
  replace_tensor(moved(tensor()));
  carried_versions_ = before - tensor_version();
  tensor().mutable_grad() = std::move(grad);
  main_grad_ = std::move(main_grad);
}

void Parameter::cast_to(at::ScalarType dtype) {
  if (tensor().scalar_type() == dtype) return;
  check_movable();
  const at::NoGradGuard no_grad;
  // On the recorded device no operator is recorded: a cast is no part of a step.
  const auto cast = [dtype](const at::Tensor& x) {
    if (!x.defined() || x.is_meta()) return x.defined() ? x.to(dtype) : x;
    at::Tensor out = pooled_empty(x.sizes(), dtype).copy_(is_recorded(x) ? x.to(at::kCPU) : x);
    return is_recorded(x) ? on_recorded_device(std::move(out)) : out;
  };
  at::Tensor grad = cast(gradient());
  const int64_t partial_step = partial_step_;
  replace_value(cast(tensor()));
  partial_step_ = partial_step;
  tensor().mutable_grad() = std::move(grad);
  main_grad_.reset();
}

void Parameter::release() {
  check_movable();
  forget_gradient();
  if (!has_value()) return;
  home_ = tensor().device();
  replace_value(at::empty(tensor().sizes(), tensor().options().device(at::kMeta)));
}

std::string Parameter::why_partial() const {
  return partial_step_ < 0 ? "" : partial_text(canonical_name_, partial_step_);
}

void Parameter::check_complete() const {
  if (partial_step_ >= 0) fail(NXD_ERROR_INVALID_STATE, why_partial());
}

void Parameter::draw_initial_full() { initial_full_ = draw(ShardSpec::replicated(shard_.shape())); }

void Parameter::keep_initial_full() {
  keeps_initial_full_ = true;
  if (has_value()) draw_initial_full();
}

const at::Tensor& Parameter::initial_full() {
  if (!initial_full_.defined()) draw_initial_full();
  return initial_full_;
}

at::Tensor Parameter::slice_of(const at::Tensor& full, const ShardSpec& shard) const {
  check_argument(full.is_floating_point(), "parameter ", canonical_name_,
                 ": expected a whole of a float dtype, got ", dtype_text(full.scalar_type()));
  check_argument(full.sizes() == at::IntArrayRef(shard.shape()), "parameter ", canonical_name_,
                 ": expected the whole shape ", shape_text(shard.shape()), ", got ", full.sizes());
  if (shard.dim() < 0) return full;
  const int64_t extent = full.size(shard.dim());
  std::vector<at::Tensor> parts;
  for (const ShardSpec::Range& range : shard.ranges()) {
    const int64_t begin = std::min(range.begin, extent), end = std::min(range.end, extent);
    parts.push_back(full.narrow(shard.dim(), begin, end - begin));
    if (range.end == end) continue;
    std::vector<int64_t> padding = full.sizes().vec();
    padding[static_cast<size_t>(shard.dim())] = range.end - range.begin - (end - begin);
    parts.push_back(at::zeros(padding, full.options()));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, shard.dim());
}

at::Tensor Parameter::value_of(const ShardSpec& shard, const at::Tensor& full) const {
  const at::NoGradGuard no_grad;
  at::Tensor value =
      pooled_empty(shard.local_shape(), tensor().scalar_type()).copy_(slice_of(full, shard));
  return is_recorded(tensor()) ? on_recorded_device(std::move(value)) : value;
}

void Parameter::reshard(ShardSpec shard, at::Tensor value) {
  check_movable();
  check_internal(shard.shape() == shard_.shape(), "a shard of another whole");
  const at::NoGradGuard no_grad;
  forget_gradient();
  shard_ = std::move(shard);
  if (!has_value()) value = at::empty(shard_.local_shape(), tensor().options());
  replace_value(std::move(value));
}

void Parameter::set_value(at::Tensor value) {
  const at::NoGradGuard no_grad;
  if (!has_value()) return give_value(std::move(value));
  if (is_recorded(tensor())) {
    set_device_value(tensor(), std::move(value));
    tensor().unsafeGetTensorImpl()->bump_version();
  } else {
    tensor().copy_(value);
  }
  mark_complete();
}

void Parameter::set_full(const at::Tensor& full) {
  check_argument(!full.is_meta(), "parameter ", canonical_name_,
                 ": expected a whole with values, got one on the meta device");
  const at::NoGradGuard no_grad;
  const at::Tensor own = slice_of(full).to(at::kCPU);
  if (tensor().is_cpu()) {
    tensor().copy_(own);
    mark_complete();
  } else {
    set_value(pooled_empty(own.sizes(), tensor().scalar_type()).copy_(own));
  }
}

void Parameter::replace_tensor(at::Tensor value) {
  value.set_requires_grad(tensor().requires_grad());
  reject_gradients(tensor_, canonical_name_);
  tensor_ = std::move(value);
  hooks_.move_to_tensor();
}

void Parameter::replace_value(at::Tensor value) {
  const uint64_t before = version();
  replace_tensor(std::move(value));
  carried_versions_ = before + 1 - tensor_version();
  mark_complete();
}

void Parameter::give_value(at::Tensor value) {
  replace_value(home_.is_cpu() ? std::move(value) : on_recorded_device(std::move(value)));
}

void Parameter::forget_gradient() {
  tensor().mutable_grad().reset();
  main_grad_.reset();
}

}  // namespace nxd
