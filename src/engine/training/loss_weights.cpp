#include "engine/training/loss_weights.h"

#include <ATen/ATen.h>

#include "core/agree/agree.h"
#include "core/base/hash.h"
#include "core/world/trained_axes.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/collectives.h"

namespace nxd {
namespace {

void check_labels(const std::vector<at::Tensor>& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (!labels[i].defined()) continue;
    check_argument(labels[i].scalar_type() == at::kLong, "labels[", i, "]: expected I64, got ",
                   labels[i].scalar_type());
    check_argument(!labels[i].is_meta(), "labels[", i,
                   "]: expected values, got a tensor on the meta device");
    check_argument(labels[i].dim() != 0, "labels[", i, "]: expected [.., sequence], got a scalar");
  }
}

int64_t count_valid(const at::Tensor& given, int64_t ignore_index, bool shifted) {
  if (!given.defined() || given.numel() == 0) return 0;
  const at::Tensor labels = host_memory(given, "nxd::count_labels");
  const at::Tensor counted = shifted ? labels.narrow(-1, 1, labels.size(-1) - 1) : labels;
  return counted.ne(ignore_index).sum().item<int64_t>();
}

uint32_t rules_digest(int64_t ignore_index, bool shifted) {
  return Hash().add(static_cast<uint64_t>(ignore_index)).add(shifted ? 1 : 0).folded();
}

}  // namespace

std::vector<double> loss_weights(ProcessGroup& group, const std::vector<at::Tensor>& labels,
                                 int64_t ignore_index, bool shifted, const Outcome& given) {
  at::NoGradGuard no_grad;
  std::vector<int64_t> counts;
  int64_t total = 0;
  Proposal proposal(group.ranks()[static_cast<size_t>(group.rank())], "loss_weights");
  proposal.attempt([&] {
    given.rethrow();
    check_labels(labels);
    for (const at::Tensor& each : labels) {
      counts.push_back(count_valid(each, ignore_index, shifted));
      total += counts.back();
    }
  });
  const bool failed = !proposal.own().good();
  proposal.same("ignore_index", static_cast<double>(ignore_index))
      .same("shifted", shifted ? 1 : 0)
      .same_digest("ignore_index and shifted", rules_digest(ignore_index, shifted));
  // Labels on the recorded device would have been waited for.
  if (failed && group.size() > 1) run_recorded_before("loss_weights");
  // The square of the sum is the sum of the squares times the ranks, where all digests are one.
  const int64_t rules = rules_digest(ignore_index, shifted) & 0xffffffU;
  int64_t sums[] = {total, failed ? 1 : 0, rules, rules * rules};
  if (group.size() > 1) {
    try {
      group.run(Call::all_reduce(sums, sums, 4, NXD_DTYPE_I64, NXD_REDUCE_SUM));
    } catch (const Error&) {
      proposal.own().rethrow();
      throw;
    }
  }
  const auto ranks = static_cast<uint64_t>(group.size()), sum = static_cast<uint64_t>(sums[2]);
  const bool differ = group.size() > 1 && sum * sum != ranks * static_cast<uint64_t>(sums[3]);
  // Only then do ranks meet once more, for the reason.
  if (sums[1] != 0 || differ) agree({&group}, proposal);
  total = sums[0];
  std::vector<double> weights;
  for (const int64_t count : counts) {
    weights.push_back(total == 0 ? 0 : static_cast<double>(count) / static_cast<double>(total));
  }
  return weights;
}

std::vector<double> loss_weights(const Context& context, const std::vector<at::Tensor>& labels,
                                 int64_t ignore_index, bool shifted, const Outcome& given) {
  check_trained_axes(context, "weights of losses");
  const auto layout = context.find_parallel();
  const auto data = layout ? layout->group(NXD_AXIS_DATA) : context.world();
  return loss_weights(*data, labels, ignore_index, shifted, given);
}

}  // namespace nxd
