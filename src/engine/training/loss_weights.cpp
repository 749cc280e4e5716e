#include "engine/training/loss_weights.h"

#include <ATen/ATen.h>

#include "core/world/trained_axes.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/collectives.h"

namespace nxd {
namespace {

// "" when labels can be counted.
std::string rejection_of(const std::vector<at::Tensor>& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (!labels[i].defined()) continue;
    if (labels[i].scalar_type() != at::kLong) {
      return text("labels[", i, "]: expected I64, got ", labels[i].scalar_type());
    }
    if (labels[i].is_meta())
      return text("labels[", i, "]: expected values, got a tensor on the meta device");
    if (labels[i].dim() == 0) return text("labels[", i, "]: expected [.., sequence], got a scalar");
  }
  return "";
}

int64_t count_valid(const at::Tensor& given, int64_t ignore_index, bool shifted) {
  if (!given.defined() || given.numel() == 0) return 0;
  const at::Tensor labels = host_memory(given, "nxd::count_labels");
  const at::Tensor counted = shifted ? labels.narrow(-1, 1, labels.size(-1) - 1) : labels;
  return counted.ne(ignore_index).sum().item<int64_t>();
}

}  // namespace

std::vector<double> loss_weights(const Context& context, const std::vector<at::Tensor>& labels,
                                 int64_t ignore_index, bool shifted, const Outcome& given) {
  at::NoGradGuard no_grad;
  check_trained_axes(context, "weights of losses");
  const auto layout = context.find_parallel();
  const auto data = layout ? layout->group(NXD_AXIS_DATA) : context.world();
  ProcessGroup& group = *data;
  const std::string wrong = given.good() ? rejection_of(labels) : given.reason;
  if (group.size() > 1) {
    check_with_group(group, wrong.empty(), "loss_weights", wrong);
  } else {
    check_argument(wrong.empty(), wrong);
  }
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const at::Tensor& each : labels) {
    counts.push_back(count_valid(each, ignore_index, shifted));
    total += counts.back();
  }
  if (group.size() > 1) {
    group.run(Call::all_reduce(&total, &total, 1, NXD_DTYPE_I64, NXD_REDUCE_SUM));
  }
  std::vector<double> weights;
  for (const int64_t count : counts) {
    weights.push_back(total == 0 ? 0 : static_cast<double>(count) / static_cast<double>(total));
  }
  return weights;
}

}  // namespace nxd
