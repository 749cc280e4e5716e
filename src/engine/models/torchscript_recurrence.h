#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

// Recurrent layers of PyTorch, one at a time, so that what is dropped between them is not
// libtorch's to draw.
namespace nxd {

// The arguments of aten::lstm, gru, rnn_tanh and rnn_relu for whole tensors, but for the dropout.
struct ScriptRecurrence {
  enum class Cell : int64_t { kLstm, kGru, kTanh, kRelu };
  Cell cell = Cell::kLstm;
  at::Tensor input;                    // [sequence, batch, features], or the batch first
  std::vector<at::Tensor> states;      // each [layers * directions, batch, hidden]
  std::vector<at::Tensor> parameters;  // as many for each layer
  bool has_biases = true;
  int64_t layers = 1;
  bool is_training = false;
  bool bidirectional = false;
  bool batch_first = false;
};

// The outputs of the last layer, and the last states of all. Each layer but the first computes with
// what drop makes of the outputs before. INVALID_ARGUMENT for numbers of layers and parameters that
// do not fit.
std::vector<at::Tensor> run_recurrence(const ScriptRecurrence& recurrence,
                                       const std::function<at::Tensor(const at::Tensor&)>& drop);

}  // namespace nxd
