#include "engine/device/recorded_device.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/version.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/comm/recorded_step.h"
#include "engine/device/composed_operators.h"
#include "engine/device/device_tensor.h"
#include "engine/device/meta_kernels.h"
#include "engine/device/recorded_batch_norm.h"
#include "engine/device/recorder.h"
#include "engine/device/replay_plan.h"
#include "engine/device/step_closures.h"
#include "engine/device/view_history.h"
#include "engine/device/view_inverses.h"
#include "engine/operator_library.h"
#include "engine/torch_compat.h"

namespace nxd {
namespace {

using Dtype = c10::optional<at::ScalarType>;
using Layout = c10::optional<at::Layout>;
using Device = c10::optional<at::Device>;
using Flag = c10::optional<bool>;
using Format = c10::optional<at::MemoryFormat>;

// One device, without streams. It counts as none where libtorch starts threads for its backward
// passes: ours run on the thread that asks for them (autograd/caller_engine.h).
class RecordedDeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kRecordedDeviceType; }
  c10::Device exchangeDevice(c10::Device device) const override { return device; }
  c10::Device getDevice() const override { return {kRecordedDeviceType, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept(compat::kStreamsAreNoexcept) override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const
      noexcept(compat::kStreamsAreNoexcept) override {
    return stream;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
};

c10::OperatorHandle operator_of(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

at::Tensor recorded(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  record_operator(op, &stack);
  return stack.at(0).toTensor();
}

at::Tensor recorded_empty(const std::vector<int64_t>& sizes, Dtype dtype) {
  static const c10::OperatorHandle op = operator_of("aten::empty", "memory_format");
  return recorded(op, {sizes, static_cast<int64_t>(dtype.value_or(at::kFloat)), c10::IValue(),
                       c10::Device(kRecordedDeviceType, 0), c10::IValue(), c10::IValue()});
}

at::Tensor empty(c10::SymIntArrayRef sizes, Dtype dtype, Layout, Device, Flag, Format) {
  return recorded_empty(compat::sizes_of(sizes), dtype);
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef, Dtype dtype, Layout,
                         Device, Flag) {
  return recorded_empty(compat::sizes_of(sizes), dtype);
}

at::Tensor to_copy(const at::Tensor& self, Dtype dtype, Layout layout, Device device, Flag pin,
                   bool non_blocking, Format) {
  const at::ScalarType type = dtype.value_or(self.scalar_type());
  if (!is_recorded(self)) {
    at::Tensor data;
    {
      const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
      data = at::_to_copy(self, type, layout, at::kCPU, pin, non_blocking,
                          at::MemoryFormat::Contiguous);
    }
    return device_tensor(Recording::current()->known(std::move(data)));
  }
  if (device && device->type() != kRecordedDeviceType) {
    const at::Tensor data = Recording::value_of(device_value(self), "aten::_to_copy");
    const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
    return at::_to_copy(data, type, layout, device, pin, non_blocking, c10::nullopt);
  }
  static const c10::OperatorHandle op = operator_of("aten::_to_copy", "");
  return recorded(op, {self, static_cast<int64_t>(type), c10::IValue(), c10::IValue(),
                       c10::IValue(), false, c10::IValue()});
}

// Overwrites a tensor with one of another device, in place.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  const at::Tensor source =
      is_recorded(self) ? Recording::value_of(device_value(self), "aten::_copy_from") : self;
  if (!is_recorded(target)) {
    target.copy_(source);
    return target;
  }
  set_device_value(
      target,
      source.to(target.scalar_type()).expand(target.sizes()).clone(at::MemoryFormat::Contiguous));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  const at::Tensor source =
      is_recorded(self) ? Recording::value_of(device_value(self), "aten::_copy_from") : self;
  set_device_value(target, source.clone(at::MemoryFormat::Contiguous));
  return target;
}

#if TORCH_VERSION_MAJOR < 2
using at::FunctionalTensorWrapper;

// libtorch 1.13 makes a shallow copy of the wrapper, which forgets that it is a view: once anything
// was written to the base, the copy reads as all of it. A detached view is a view by the identity
// of the same base, for which nothing is recorded.
at::Tensor detach(const at::Tensor& self) {
  const c10::VariableVersion& version = self.unsafeGetTensorImpl()->version_counter();
  const bool wrapped = at::functionalization::impl::isFunctionalTensor(self);
  // The writes to the base that are put off would make each tensor look like a view.
  if (wrapped) at::functionalization::impl::sync(self);
  if (!wrapped || !reads_a_base(self)) {
    return at::Tensor(self.unsafeGetTensorImpl()->shallow_copy_and_detach(
        version, /*allow_tensor_metadata_change=*/false));
  }
  const FunctionalTensorWrapper* view =
      at::functionalization::impl::unsafeGetFunctionalWrapper(self);
  const at::functionalization::ViewMeta identity(
      [](const at::Tensor& base, int64_t) { return base; },
      [](const at::Tensor&, const at::Tensor& written, int64_t) { return written; });
  at::Tensor detached =
      at::detail::make_tensor<FunctionalTensorWrapper>(view->value(), view, identity);
  detached.unsafeGetTensorImpl()->set_version_counter(version);
  return detached;
}
#endif

at::Scalar item(const at::Tensor& self) {
  return Recording::value_of(device_value(self), "aten::item").item();
}

bool has_alias(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info()) return true;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info()) return true;
  }
  return false;
}

bool takes_tensor_or_device(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.type()->str().find("Tensor") != std::string::npos) return true;
    if (argument.type()->str().find("Device") != std::string::npos) return true;
  }
  return false;
}

// True if it is recorded as it is, instead of the operators that libtorch composes it of.
// Operators that autograd knows only by their parts are composed, so that there is a gradient.
bool is_recorded_whole(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> made_by_hand = {"aten::empty",
                                                                    "aten::empty_strided",
                                                                    "aten::_to_copy",
                                                                    "aten::_copy_from",
                                                                    "aten::_copy_from_and_resize",
                                                                    "aten::_local_scalar_dense",
                                                                    "aten::lift",
                                                                    "aten::lift_fresh",
                                                                    "aten::lift_fresh_copy",
                                                                    "aten::new_empty",
                                                                    "aten::new_empty_strided",
                                                                    "aten::empty_like",
                                                                    "aten::native_batch_norm",
                                                                    "aten::detach",
                                                                    "aten::item"};
  if (made_by_hand.count(op.operator_name().name) != 0 || has_alias(op.schema())) return false;
  if (!recorded_operator(op).why_not_recorded.empty() || !takes_tensor_or_device(op.schema())) {
    return false;
  }
  using Key = c10::DispatchKey;
  const bool on_cpu = op.hasKernelForDispatchKey(Key::CPU);
  if (op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd) && !on_cpu) return false;
  return on_cpu || op.hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional);
}

// Kept by the process: tensors of the device may outlive everything else.
struct Registrations {
  RecordedDeviceGuard guard{};
  torch::Library fallback = open_operators(kRecordedKey, "_");
  torch::Library aten = open_operators(kRecordedKey);
  torch::Library autograd = open_operators(c10::DispatchKey::AutogradXLA);
};

void register_kernels(Registrations& r) {
  const c10::impl::DeviceGuardImplRegistrar registrar(kRecordedDeviceType, &r.guard);
  r.fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&record_operator>());
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !is_recorded_whole(*op)) continue;
    r.aten.impl(qualified_name(*op).substr(6).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&record_operator>());
  }
  r.aten.impl("empty.memory_format", TORCH_FN(empty));
  r.aten.impl("empty_strided", TORCH_FN(empty_strided));
  r.aten.impl("_to_copy", TORCH_FN(to_copy));
  r.aten.impl("_copy_from", TORCH_FN(copy_from));
  r.aten.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  r.aten.impl("_local_scalar_dense", TORCH_FN(item));
  r.aten.impl("native_batch_norm", TORCH_FN(record_batch_norm));
#if TORCH_VERSION_MAJOR < 2
  r.autograd.impl("detach", TORCH_FN(detach));
#endif
}

}  // namespace

void use_recorded_device(GraphCompiler compiler) {
  static std::mutex mutex;
  static Registrations* registrations = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (registrations) return;
  if (c10::impl::hasDeviceGuardImpl(kRecordedDeviceType)) {
    fail(NXD_ERROR_UNSUPPORTED,
         "device xla: another library of this process has the device already");
  }
  set_graph_compiler(compiler);
  auto made = std::make_unique<Registrations>();
  register_kernels(*made);
  mend_view_inverses();
  add_composed_operators();
  note_shape_changes();
  add_meta_kernels();
  registrations = made.release();
  set_recorded_step_end([] { mark_step(true); });
}

}  // namespace nxd
