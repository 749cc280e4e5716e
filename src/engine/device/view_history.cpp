#include "engine/device/view_history.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/device/device_tensor.h"
#include "engine/graph_node.h"

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

}  // namespace

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
