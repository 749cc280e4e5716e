#include "engine/models/torchscript_recurrence.h"

#include <ATen/ATen.h>

#include <tuple>

#include "engine/module/module.h"

namespace nxd {
namespace {

using Tensors = Module::Tensors;

Tensors run_layer(const ScriptRecurrence& r, int64_t layer, const at::Tensor& x) {
  const int64_t directions = r.bidirectional ? 2 : 1;
  Tensors states;
  for (const at::Tensor& each : r.states) {
    states.push_back(each.narrow(0, layer * directions, directions));
  }
  const auto count = static_cast<int64_t>(r.parameters.size()) / r.layers;
  const auto first = r.parameters.begin() + layer * count;
  const Tensors own(first, first + count);
  const auto simple = [&](const auto& function) {
    const std::tuple<at::Tensor, at::Tensor> out = function(
        x, states.at(0), own, r.has_biases, 1, 0.0, r.is_training, r.bidirectional, r.batch_first);
    return Tensors{std::get<0>(out), std::get<1>(out)};
  };
  using Simple =
      std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&, const at::Tensor&, at::TensorList,
                                             bool, int64_t, double, bool, bool, bool);
  switch (r.cell) {
    case ScriptRecurrence::Cell::kLstm: {
      const auto [y, h, c] = at::lstm(x, states, own, r.has_biases, 1, 0.0, r.is_training,
                                      r.bidirectional, r.batch_first);
      return {y, h, c};
    }
    case ScriptRecurrence::Cell::kGru: return simple(static_cast<Simple>(&at::gru));
    case ScriptRecurrence::Cell::kTanh: return simple(static_cast<Simple>(&at::rnn_tanh));
    case ScriptRecurrence::Cell::kRelu: return simple(static_cast<Simple>(&at::rnn_relu));
  }
  fail(NXD_ERROR_INTERNAL, "recurrence: expected a kind of cells");
}

}  // namespace

Tensors run_recurrence(const ScriptRecurrence& recurrence,
                       const std::function<at::Tensor(const at::Tensor&)>& drop) {
  const auto parameters = static_cast<int64_t>(recurrence.parameters.size());
  check_argument(recurrence.layers > 0 && parameters % recurrence.layers == 0,
                 "recurrent layers: expected as many parameters for each layer, got ", parameters,
                 " for ", recurrence.layers, " layers");
  at::Tensor x = recurrence.input;
  std::vector<Tensors> last_states(recurrence.states.size());
  for (int64_t layer = 0; layer < recurrence.layers; ++layer) {
    const Tensors out = run_layer(recurrence, layer, layer == 0 ? x : drop(x));
    x = out[0];
    for (size_t i = 0; i < last_states.size(); ++i) last_states[i].push_back(out[i + 1]);
  }
  Tensors result{x};
  for (const Tensors& states : last_states) result.push_back(at::cat(states));
  return result;
}

}  // namespace nxd
