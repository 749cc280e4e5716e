#include "engine/training/module_parameters.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "core/base/dtype.h"
#include "core/world/trained_axes.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/device/replay_plan.h"
#include "engine/module/module_tree.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"
#include "engine/training/local_module.h"
#include "engine/training/made_layout.h"
#include "engine/training/recorded_step.h"

namespace nxd {
namespace {

// The reason of its implicit syncs on the recorded device.
constexpr const char* kUpdate = "nxd::update_parameters";

}  // namespace

ModuleParameters::ModuleParameters(std::shared_ptr<Module> root) : root_(std::move(root)) {
  check_trained_axes(context(), "reductions, norms and updates of modules' gradients");
  for (const NamedParameter& entry : named_parameters(*root_)) {
    const Parameter& parameter = *entry.parameter;
    if (!parameter.tensor().requires_grad()) {
      frozen_.insert(&parameter);
      continue;
    }
    const nxd_dtype_t dtype = to_nxd_dtype(parameter.tensor().scalar_type());
    Slot slot;
    slot.parameter = entry.parameter;
    slot.info = {entry.name,
                 dtype,
                 dtype,
                 parameter.shard(),
                 parameter.gradient_group(),
                 parameter.counts_in_norm(),
                 parameter.shard().dim() < 0};
    slots_.push_back(std::move(slot));
  }
  for (const Slot& each : slots_) each.parameter->add_trainer();
}

ModuleParameters::~ModuleParameters() {
  for (const Slot& slot : slots_) slot.parameter->remove_trainer();
}

void* ModuleParameters::dense_gradient(Slot& slot) const {
  at::Tensor& p = slot.parameter->tensor();
  at::Tensor& grad = p.mutable_grad();
  if (!grad.defined() || !(p.requires_grad() || slot.lent_gradient)) return nullptr;
  check_state(to_nxd_dtype(grad.scalar_type()) == slot.info.grad_dtype, "parameter ",
              slot.info.name, ": expected a gradient of ", dtype_name(slot.info.grad_dtype),
              ", got ", dtype_name(to_nxd_dtype(grad.scalar_type())));
  make_dense(grad);
  if (!grad.is_contiguous()) grad = grad.contiguous();
  return host_memory(grad, kUpdate).data_ptr();
}

void ModuleParameters::check_value(size_t index) const {
  const Slot& slot = slots_[index];
  const at::Tensor& p = slot.parameter->tensor();
  check_state(!p.is_meta(), "parameter ", slot.info.name,
              ": it has no values, since it is on the meta device");
  check_state(p.is_contiguous(), "parameter ", slot.info.name,
              ": expected values in C order, got the strides ", p.strides());
  check_state(p.numel() == slot.info.count() && to_nxd_dtype(p.scalar_type()) == slot.info.dtype,
              "parameter ", slot.info.name, ": expected ", slot.info.count(), " values of ",
              dtype_name(slot.info.dtype), ", got ", p.numel(), " of ",
              dtype_name(to_nxd_dtype(p.scalar_type())));
}

ParameterBuffers ModuleParameters::buffers(size_t index) {
  const at::NoGradGuard no_grad;
  check_value(index);
  Slot& slot = slots_[index];
  // On the recorded device the step's graph runs here, and its values are updated where they lie.
  const at::Tensor p = host_memory(slot.parameter->tensor(), kUpdate);
  return {p.data_ptr(), dense_gradient(slot)};
}

const void* ModuleParameters::value(size_t index) {
  const at::NoGradGuard no_grad;
  check_value(index);
  return host_memory(slots_[index].parameter->tensor(), kUpdate).data_ptr();
}

at::Tensor& ModuleParameters::gradient(size_t index) {
  return slots_[index].parameter->tensor().mutable_grad();
}

bool ModuleParameters::has_gradient(size_t index) {
  const Slot& slot = slots_[index];
  const at::Tensor& p = slot.parameter->tensor();
  if (!is_recorded(p)) return buffers(index).grad != nullptr;
  return gradient(index).defined() && (p.requires_grad() || slot.lent_gradient);
}

std::unique_ptr<StepRecorder> ModuleParameters::make_step_recorder() {
  return std::make_unique<RecordedStep>(*this);
}

std::optional<int> ModuleParameters::mode_of_forwards() const {
  const Module::Modes used = modes_used(*root_);
  if (used.none()) return std::nullopt;
  if (used.evaluation && used.training) return 2;
  return used.training ? 1 : 0;
}

// A plug-in may run the graphs of all ranks as replicas of one program.
bool ModuleParameters::wants_parts_alike() const {
  return !slots_.empty() && is_recorded(parameter(0).tensor()) && has_graph_compiler();
}

void ModuleParameters::make_zero_gradient(size_t index) {
  const at::NoGradGuard no_grad;
  Slot& slot = slots_[index];
  at::Tensor& p = slot.parameter->tensor();
  slot.lent_gradient = !p.requires_grad();
  at::Tensor zeros = pooled_empty(p.sizes(), p.scalar_type()).zero_();
  p.mutable_grad() = is_recorded(p) ? on_recorded_device(std::move(zeros)) : std::move(zeros);
}

void ModuleParameters::value_changed(size_t index) {
  // Written by other means than ATen: whatever was derived from the old value must notice.
  torch::autograd::impl::bump_version(slots_[index].parameter->tensor());
}

uint64_t ModuleParameters::value_version(size_t index) {
  return slots_[index].parameter->version();
}

void ModuleParameters::mark_partial(size_t index) { slots_[index].parameter->mark_partial(step()); }

std::string ModuleParameters::why_partial() const {
  for (const Slot& slot : slots_) {
    if (std::string why = slot.parameter->why_partial(); !why.empty()) return why;
  }
  return "";
}

std::optional<std::vector<std::string>> ModuleParameters::names_of_model() const {
  const Module& model = full_model(*root_);
  if (&model == root_.get()) return ParameterSource::names_of_model();
  std::vector<std::string> names;
  // The rank that has a parameter knows whether it is trained; of others' it hears in a run.
  for (const NamedParameter& entry : named_parameters(model)) {
    if (frozen_.count(entry.parameter.get()) == 0) names.push_back(entry.name);
  }
  return names;
}

// More ranks than one need a layout.
std::shared_ptr<const ParallelState> ModuleParameters::layout() const {
  return context().size() > 1 ? context().parallel() : context().find_parallel();
}

const OptimizerGroups& ModuleParameters::groups() const {
  groups_ = groups_of_layout(context(), layout().get());
  return groups_;
}

// The groups are those of now, and shards keep the ones that they were cut for.
std::string ModuleParameters::why_other_layout() const {
  const auto now = layout();
  if (!now) return "";
  std::vector<NamedParameter> parameters;
  for (const Slot& slot : slots_) parameters.push_back({slot.info.name, slot.parameter});
  return nxd::why_other_layout(*root_, parameters, *now);
}

bool ModuleParameters::plain_kernels() const { return context().plain_kernels(); }
uint64_t ModuleParameters::seed() const { return context().seed(); }
int64_t ModuleParameters::step() const { return context().step(); }

void ModuleParameters::advance_step() {
  context().set_step(context().step() + 1, 0);
  for (Slot& slot : slots_) slot.lent_gradient = false;
}

void ModuleParameters::check_usable() const { context().check_usable(); }

std::string ModuleParameters::why_reduced_elsewhere() const {
  for (const Slot& slot : slots_) {
    if (!slot.parameter->hooks().has_reducer()) continue;
    return text("parameter ", slot.info.name,
                ": a ddp reduces its gradient; finish gradients with nxd_ddp_finish, and make "
                "optimizers over the ddp (nxd_optimizer_create_adamw_ddp and so on)");
  }
  return "";
}

}  // namespace nxd
