#include "engine/training/module_data_parallel.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/base/log.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/memory_pool.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/device/step_closures.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

// A tensor in memory that owner keeps.
template <class Owner>
at::Tensor tensor_at(void* data, at::IntArrayRef sizes, at::ScalarType type, Owner owner) {
  return at::from_blob(
      data, sizes, [owner](void*) {}, at::TensorOptions().dtype(type));
}

at::Tensor own_copy(const at::Tensor& tensor, at::ScalarType type) {
  return pooled_empty(tensor.sizes(), type).copy_(tensor);
}

// Where a tensor's values lie; null on the recorded device while they are not known.
const void* known_memory_of(const at::Tensor& tensor) {
  if (!is_recorded(tensor)) return tensor.data_ptr();
  const at::Tensor known = device_value(tensor).known_data();
  return known.defined() ? known.data_ptr() : nullptr;
}

// The same as a tensor, where they are known.
at::Tensor known_values_of(const at::Tensor& tensor) {
  return is_recorded(tensor) ? device_value(tensor).known_data() : tensor;
}

// A tensor over memory on the CPU, on the device of another.
at::Tensor on_device_of(const at::Tensor& other, at::Tensor memory) {
  return is_recorded(other) ? on_recorded_device(std::move(memory)) : memory;
}

// Moves a tensor of the recorded device to its place in a bucket, unless it is there.
void place_in_bucket(const at::Tensor& tensor, const at::Tensor& in_bucket) {
  const at::Tensor memory = host_memory(tensor, "nxd::fill_bucket");
  if (memory.data_ptr() == in_bucket.data_ptr()) return;
  set_device_value(tensor, at::Tensor(in_bucket).copy_(memory));
}

std::string why_not(const Parameter& parameter, const ParameterInfo& info) {
  if (parameter.hooks().has_reducer()) {
    return text("parameter ", info.name,
                ": another ddp has it; destroy that one, and its "
                "optimizers, first");
  }
  if (parameter.tensor().is_meta()) {
    return text("parameter ", info.name, ": it has no values, since it is on the meta device");
  }
  return "";
}

}  // namespace

BucketedParameters::BucketedParameters(std::shared_ptr<Module> root, bool fp32_grads)
    : ModuleParameters(std::move(root)), lent_(size()), groups_(ModuleParameters::groups()) {
  if (!groups_.data) groups_.data = this->root()->context()->world();  // a world of one rank
  const std::string other_layout = ModuleParameters::why_other_layout();
  check_state(other_layout.empty(), other_layout);
  for (size_t i = 0; i < size(); ++i) {
    infos_.push_back(ModuleParameters::info(i));
    if (fp32_grads && infos_[i].dtype == NXD_DTYPE_BF16) {
      infos_[i].grad_dtype = NXD_DTYPE_F32;
    }
    const std::string why = why_not(parameter(i), infos_[i]);
    check_state(why.empty(), why);
  }
}

at::Tensor BucketedParameters::view(size_t index) const {
  return tensor_at(reducer_->bucket_view(index), parameter(index).tensor().sizes(),
                   to_scalar_type(infos_[index].grad_dtype), reducer_);
}

bool BucketedParameters::is_in_bucket(size_t index) const {
  const at::Tensor& grad = parameter(index).gradient();
  return grad.defined() &&
         (grad.numel() == 0 || known_memory_of(grad) == reducer_->bucket_view(index));
}

void BucketedParameters::record_gradient(size_t index) {
  const at::NoGradGuard no_grad;
  Parameter& p = parameter(index);
  at::Tensor& grad = p.tensor().mutable_grad();
  if (!is_wide(index) || !grad.defined()) return;
  const at::Tensor wide = grad.to(at::kFloat);
  p.main_grad() = p.main_grad().defined() ? p.main_grad() + wide : wide;
  grad.reset();
}

void BucketedParameters::place_recorded(size_t index) {
  const at::NoGradGuard no_grad;
  Parameter& p = parameter(index);
  if (p.tensor().numel() == 0) return;
  if (gather_ && gather_->bucket_view(index)) place_in_bucket(p.tensor(), value_view(index));
  record_gradient(index);
  if (reducer_ && p.gradient().defined()) place_in_bucket(p.gradient(), view(index));
}

at::Tensor BucketedParameters::value_view(size_t index) const {
  const at::Tensor& p = parameter(index).tensor();
  return tensor_at(gather_->bucket_view(index), p.sizes(), p.scalar_type(), gather_);
}

void BucketedParameters::add_to_main_grad(size_t index) {
  Parameter& p = parameter(index);
  at::Tensor& grad = p.tensor().mutable_grad();
  const at::Tensor dense = grad.contiguous();
  const nxd_dtype_t dtype = to_nxd_dtype(dense.scalar_type());
  void* in_bucket = reducer_->bucket_view(index);
  if (p.main_grad().defined()) {
    kernels::scale_add(dtype, NXD_DTYPE_F32, dense.numel(), dense.data_ptr(), 1, in_bucket);
  } else {
    kernels::cast(dtype, dense.data_ptr(), NXD_DTYPE_F32, in_bucket, dense.numel());
    p.main_grad() = view(index);
  }
  grad.reset();
}

// Code other than a backward pass may have left it elsewhere.
void BucketedParameters::place_main_grad(size_t index) {
  at::Tensor& main_grad = parameter(index).main_grad();
  if (!main_grad.defined() || is_in_bucket(index)) return;
  at::Tensor in_bucket = view(index);
  in_bucket.copy_(main_grad);
  main_grad = std::move(in_bucket);
}

void BucketedParameters::take_gradient(size_t index) {
  const at::NoGradGuard no_grad;
  at::Tensor& grad = parameter(index).tensor().mutable_grad();
  make_dense(grad);
  if (!reducer_ || parameter(index).tensor().numel() == 0) return;
  place_main_grad(index);
  if (!grad.defined()) return;
  if (!is_wide(index) && is_in_bucket(index)) return;
  check_state(!reducer_->options().overlap || !reducer_->is_marked(index), "parameter ",
              info(index).name, ": its gradient was replaced while it is being reduced");
  check_state(grad.scalar_type() == parameter(index).tensor().scalar_type(), "parameter ",
              info(index).name, ": expected a gradient of the parameter's dtype, got ",
              grad.scalar_type());
  if (is_wide(index)) return add_to_main_grad(index);
  at::Tensor in_bucket = view(index);
  in_bucket.copy_(grad);
  grad = std::move(in_bucket);
}

ParameterBuffers BucketedParameters::buffers(size_t index) {
  if (is_recorded(parameter(index).tensor())) {
    place_recorded(index);
  } else {
    take_gradient(index);
  }
  ParameterBuffers found = ModuleParameters::buffers(index);
  if (!is_wide(index)) return found;
  Parameter& p = parameter(index);
  const bool has_one = p.main_grad().defined() && (p.tensor().requires_grad() || lent_[index]);
  found.grad = has_one ? host_memory(p.main_grad(), "nxd::fill_bucket").data_ptr() : nullptr;
  return found;
}

// Code other than a backward pass may leave gradients of the parameter's dtype.
at::Tensor& BucketedParameters::gradient(size_t index) {
  Parameter& p = parameter(index);
  if (is_recorded(p.tensor())) record_gradient(index);
  return is_wide(index) ? p.main_grad() : p.tensor().mutable_grad();
}

std::optional<nxd_reduce_t> BucketedParameters::data_parallel_reduce() const {
  return reducer_->options().reduce;
}

// The reducer has put zeros, or the sum of other ranks' gradients, into the bucket.
void BucketedParameters::make_zero_gradient(size_t index) {
  const at::NoGradGuard no_grad;
  ModuleParameters::make_zero_gradient(index);  // which remembers frozen ones
  at::Tensor& grad = parameter(index).tensor().mutable_grad();
  if (grad.numel() == 0) return;
  if (is_wide(index)) {
    lent_[index] = 1;
    grad.reset();
    parameter(index).main_grad() = on_device_of(parameter(index).tensor(), view(index));
  } else {
    grad = on_device_of(parameter(index).tensor(), view(index));
  }
}

void BucketedParameters::advance_step() {
  ModuleParameters::advance_step();
  std::fill(lent_.begin(), lent_.end(), char{0});
}

// One that has no place in a bucket yet becomes the parameter's again.
void BucketedParameters::narrow_gradient(size_t index) {
  Parameter& p = parameter(index);
  if (!p.main_grad().defined() || is_in_bucket(index)) return;
  p.tensor().mutable_grad() = p.main_grad().to(p.tensor().scalar_type());
  p.main_grad().reset();
}

void BucketedParameters::release_gradients() {
  const at::NoGradGuard no_grad;
  if (!reducer_) return;
  for (size_t i = 0; i < size(); ++i) {
    Parameter& p = parameter(i);
    if (is_wide(i)) narrow_gradient(i);
    if (!is_in_bucket(i)) continue;
    p.tensor().mutable_grad() =
        on_device_of(p.tensor(), own_copy(known_values_of(p.gradient()), p.tensor().scalar_type()));
    p.main_grad().reset();
  }
  reducer_.reset();
  gather_.reset();
}

namespace {

std::shared_ptr<ProcessGroup> data_group(const Context& context) {
  const auto layout = context.size() == 1 ? context.find_parallel() : context.parallel();
  return layout ? layout->group(NXD_AXIS_DATA) : context.world();
}

}  // namespace

// Values of the recorded device stay where they are: a plug-in shares memory that is aligned, as
// that of a tensor is, and not that of a place in a bucket.
bool values_may_move(const BucketedParameters& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_recorded(parameters.parameter(i).tensor())) return false;
  }
  return true;
}

ModuleDataParallel::ModuleDataParallel(const std::shared_ptr<Module>& root,
                                       const DataParallelOptions& options,
                                       const Outcome& resolved) {
  const Context& context = *root->context();
  context.check_usable();
  const auto group = data_group(context);
  Proposal proposal(context.rank());
  proposal.attempt(
      [&] { parameters_ = std::make_shared<BucketedParameters>(root, options.fp32_grads); });
  proposal.attempt([&] { resolved.rethrow(); });
  agree_on_options(*group, options, proposal);
  source_ = parameters_;
  make_parts(options, /*gradient_views=*/true, values_may_move(*parameters_));
  try {
    parameters_->set_buckets(reducer_, gather_);
    set_hooks();
    if (gather_) move_values();
    broadcast_values(options);
  } catch (...) {
    release();
    throw;
  }
}

ModuleDataParallel::~ModuleDataParallel() { release(); }

void ModuleDataParallel::set_hooks() {
  hooked_.resize(parameters_->size());
  for (size_t i = 0; i < parameters_->size(); ++i) {
    Parameter& parameter = parameters_->parameter(i);
    parameter.hooks().set_reducer([this, i](Parameter&) { on_gradient(i); });
    parameter.set_wide_gradient(parameters_->is_wide(i));
    hooked_[i] = 1;
  }
}

void ModuleDataParallel::move_values() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_->size(); ++i) {
    at::Tensor& p = parameters_->parameter(i).tensor();
    if (p.numel() == 0 || !gather_->bucket_view(i)) continue;
    at::Tensor in_bucket = parameters_->value_view(i);
    if (is_recorded(p)) {
      place_in_bucket(p, in_bucket);
    } else {
      p.set_data(in_bucket.copy_(p));
    }
    parameters_->value_changed(i);
  }
  // Blocks of the size of parameters, which few others have.
  kernels::pool_trim();
}

// A backward pass has added to the gradient.
void ModuleDataParallel::on_gradient(size_t index) {
  // Values are known when the graph has run, which is where the step ends: the reducer starts then.
  if (is_recorded(parameters_->parameter(index).tensor())) {
    return parameters_->record_gradient(index);
  }
  // Before the gradient comes into the bucket, which reductions of a lost step may be writing to.
  const char* const kAnother = "another backward pass begins, and this step has no end";
  if (!reducer_->why_lost().empty()) reducer_->drop(kAnother);
  // Gradients were forgotten: this is another step, and the one before has no end.
  const bool is_marked = reducer_->is_marked(index);
  const bool forgotten = is_marked && !parameters_->is_in_bucket(index);
  // Without overlap nothing is reduced before the end of a step: passes add up until then.
  if (forgotten || (is_marked && reducer_->options().overlap)) {
    reducer_->drop(kAnother);
    check_state(forgotten, "parameter ", parameters_->info(index).name,
                ": a second backward pass of one step, after its gradient went to be reduced; "
                "nxd_ddp_set_sync(0) for all microbatches of a step but the last, and "
                "nxd_ddp_finish or nxd_optimizer_step after it; gradients of this step are lost");
  }
  parameters_->take_gradient(index);
  if (sync() && !reducer_->is_marked(index)) reducer_->mark_ready(index);
}

bool ModuleDataParallel::reduces_in_passes() const {
  return sync() && reducer_->options().overlap && values_may_move(*parameters_);
}

bool ModuleDataParallel::begin_run(bool is_rejected) noexcept {
  if (!reduces_in_passes()) return false;
  bool marked = false, kept = false;
  for (size_t i = 0; i < parameters_->size(); ++i) {
    if (!reducer_->is_marked(i)) continue;
    marked = true;
    kept = kept || parameters_->parameter(i).gradient().defined();
  }
  const bool lost = !reducer_->why_lost().empty(), passed = reducer_->passed();
  // The step may go on with what it has, or the first gradient tells that there is one already.
  const bool is_done = kept || (passed && !marked) || reducer_->kept_open();
  if (is_rejected && is_done && !lost) return false;
  const bool is_next = lost || (!kept && (marked || passed));
  if (is_next) reducer_->drop("another run begins, and this step has no end");
  return true;
}

void ModuleDataParallel::end_run() noexcept {
  if (reduces_in_passes()) reducer_->set_passed();
}

void ModuleDataParallel::reject_run(const char* why) noexcept {
  if (reduces_in_passes()) reducer_->lose(why);
}

void ModuleDataParallel::release() noexcept {
  try {
    wait_for_step();
    if (reducer_) reducer_->abandon();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < hooked_.size(); ++i) {
      parameters_->parameter(i).hooks().set_reducer({});
      parameters_->parameter(i).set_wide_gradient(false);
    }
    if (parameters_) parameters_->release_gradients();
    for (size_t i = 0; gather_ && i < hooked_.size(); ++i) {
      at::Tensor& p = parameters_->parameter(i).tensor();
      const void* const in_bucket = gather_->bucket_view(i);
      if (!in_bucket || known_memory_of(p) != in_bucket) continue;
      at::Tensor own = own_copy(known_values_of(p).detach(), p.scalar_type());
      if (is_recorded(p)) {
        set_device_value(p, std::move(own));
      } else {
        p.set_data(own);
      }
      parameters_->value_changed(i);
    }
  } catch (const std::exception& error) {
    log(NXD_LOG_ERROR, "the end of a ddp: ", error.what());
  }
}

}  // namespace nxd
