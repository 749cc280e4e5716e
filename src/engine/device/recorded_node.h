#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/recorded_exchange.h"
#include "engine/device/recorded_operator.h"

namespace nxd {

struct RecordedNode;

// One result of a node.
struct NodeResult {
  std::shared_ptr<RecordedNode> node{};
  int index = 0;
};

// A tensor that a node takes, and where: as an argument, or as an element of one that is a list.
struct NodeInput {
  static constexpr int kNoList = -1;

  int argument = 0;
  int element = kNoList;
  NodeResult from{};
};

// How many tensors an argument that is a list has.
struct ListArgument {
  enum class Kind { kNone, kTensors, kOptionalTensors };
  Kind kind = Kind::kNone;
  size_t size = 0;
};

// Runs at replay on tensors that have values; gives as many results as were declared.
using ReplayFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// A call that was recorded, or a leaf: a tensor that has its value already.
struct RecordedNode {
  RecordedNode() = default;
  ~RecordedNode();
  RecordedNode(const RecordedNode&) = delete;
  RecordedNode& operator=(const RecordedNode&) = delete;

  bool is_leaf() const { return op == nullptr; }

  uint64_t id = 0;  // rises in the order of the calls
  const RecordedOperator* op = nullptr;
  std::vector<c10::IValue> arguments{};  // None where tensors were taken out
  std::vector<ListArgument> lists{};     // of each argument
  std::vector<NodeInput> inputs{};
  std::vector<at::Tensor> results{};  // on the meta device; undefined where the call gives none
  // For each result of the operator: the tensors in it where it is a list, else -1.
  std::vector<int> result_lists{};
  // For each result: the input whose memory it is written to, or -1. Empty: no result is.
  std::vector<int> overwrites{};
  // A function of the library's own has these: its body, and the part of it that is hashed.
  ReplayFunction function{};
  std::string attributes{};
  // A function that is these exchanges, one after the other, of each input on its own. Empty for
  // another function, also for one that exchanges in a way of its own.
  std::vector<RecordedExchange> exchanges{};
  at::Tensor leaf{};
};

// "f32[2, 3]"
std::string shape_text(const at::Tensor& tensor);
// "aten::add.Tensor(f32[2, 3], f32[3], 1)", without the values of scalars.
std::string call_text(const RecordedNode& node);

}  // namespace nxd
