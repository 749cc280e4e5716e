#include "engine/device/view_history.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/device/device_tensor.h"
#include "engine/device/silent_warnings.h"
#include "engine/graph_node.h"
#include "engine/operator_library.h"

namespace nxd {
namespace {

// Takes the gradient of a view, and has no one to give it to. Named as the view's function was.
class EndOfHistory final : public torch::autograd::Node {
 public:
  explicit EndOfHistory(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }

  const std::string name_;
};

// Changes how a view is made from its base: the operator that has no "_" at its end comes last.
// False where a release of libtorch keeps this in a form of its own.
template <class Info>
bool add_to_view(Info& info, const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  using Remake = std::function<at::Tensor(const at::Tensor&)>;
  if constexpr (std::is_assignable_v<decltype(info.view_fn_)&, Remake>) {
    if (!info.has_view_fn()) return true;  // by its strides
    const std::string& name = op.operator_name().name;
    const std::string& overload = op.operator_name().overload_name;
    const bool is_transpose = name == "aten::transpose_";
    const auto plain = c10::Dispatcher::singleton().findSchemaOrThrow(
        name.substr(0, name.size() - 1).c_str(), is_transpose ? "int" : overload.c_str());
    info.view_fn_ = [before = Remake(info.view_fn()), plain, arguments](const at::Tensor& base) {
      torch::jit::Stack stack = arguments;
      stack[0] = before(base);
      plain.callBoxed(&stack);
      return stack[0].toTensor();
    };
    return true;
  } else {
    return false;
  }
}

// libtorch's own kernel of autograd is found under the key of devices that have none of their own.
void change_shape(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  using torch::autograd::CreationMeta;
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  torch::jit::Stack arguments(stack->end() - count, stack->end());
  const at::Tensor self = arguments[0].toTensor();
  op.redispatchBoxed(
      c10::DispatchKeySet(c10::DispatchKey::AutogradOther) | (keys & c10::after_autograd_keyset),
      stack);
  auto* const meta = torch::autograd::impl::get_view_autograd_meta(self);
  if (!is_recorded(self) || !meta || !meta->has_bw_view()) return;
  arguments[0] = c10::IValue();  // or it would own itself
  const std::lock_guard<std::mutex> lock(meta->mutex_);
  using Info = std::remove_const_t<std::remove_reference_t<decltype(meta->get_backward_view())>>;
  if (add_to_view(const_cast<Info&>(meta->get_backward_view()), op, arguments)) return;
  // As a view of several, which libtorch lets nobody write to.
  if (meta->get_creation_meta() != CreationMeta::DEFAULT) return;
  meta->set_creation_meta(CreationMeta::MULTI_OUTPUT_NODE);
}

}  // namespace

void note_shape_changes() {
  static OperatorLibrary library;
  const SilentWarnings silent;
  torch::Library& autograd = library.open(c10::DispatchKey::AutogradXLA);
  for (const char* name :
       {"squeeze_", "squeeze_.dim", "squeeze_.dims", "t_", "transpose_", "unsqueeze_"}) {
    const std::string full = std::string("aten::") + name;
    const size_t dot = full.find('.');
    const c10::OperatorName known(full.substr(0, dot),
                                  dot == std::string::npos ? "" : full.substr(dot + 1));
    if (!c10::Dispatcher::singleton().findSchema(known)) continue;
    autograd.impl(name, torch::CppFunction::makeFromBoxedFunction<&change_shape>());
  }
}

void renew_history(const at::Tensor& tensor) {
  using torch::autograd::CreationMeta;
  if (!is_recorded(tensor)) return;
  auto* const meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (!meta || !meta->has_bw_view()) return;
  const std::lock_guard<std::mutex> lock(meta->mutex_);
  const auto version = static_cast<uint32_t>(tensor._version());
  if (!meta->grad_fn_ || meta->get_attr_version() == version) return;
  // libtorch rejects a view of several on its own.
  if (meta->get_creation_meta() != CreationMeta::DEFAULT) return;
  if (meta->get_backward_view().base_.requires_grad()) return;
  auto end = std::make_unique<EndOfHistory>(meta->grad_fn_->name());
  end->add_input_metadata(tensor);
  meta->grad_fn_ = hold(std::move(end));
  meta->set_attr_version(version);
}

}  // namespace nxd
