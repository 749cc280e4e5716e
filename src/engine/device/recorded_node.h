#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/call_signature.h"

namespace nxd {

struct RecordedNode;

// Throws INVALID_ARGUMENT for values that a call does not take, and communicates nothing.
using ValueCheck = std::function<void(const at::Tensor& values)>;
// The attributes of a check that all ranks find the same by, such as one of sizes that they share.
// Ranks that run one program have nothing to find.
inline constexpr const char* kSameOnAllRanks = "same on all ranks";

// One result of a node.
struct NodeResult {
  std::shared_ptr<RecordedNode> node{};
  int index = 0;
};

// A call that was recorded, or a leaf: a tensor that has its value already.
struct RecordedNode {
  RecordedNode() = default;
  ~RecordedNode();
  RecordedNode(const RecordedNode&) = delete;
  RecordedNode& operator=(const RecordedNode&) = delete;

  bool is_leaf() const { return call == nullptr; }

  uint64_t id = 0;  // rises in the order of the calls
  std::shared_ptr<const CallSignature> call{};
  c10::SmallVector<NodeResult, 4> inputs{};
  // The library's own function, if it is one, which is given the inputs in this order.
  std::shared_ptr<const ReplayFunction> function{};
  // The check alone, of a check of values, whose function tells the peers of a failure.
  std::shared_ptr<const ValueCheck> check{};
  at::Tensor leaf{};
};

// "f32[2, 3]"
std::string shape_text(const at::Tensor& tensor);
// "aten::add.Tensor(f32[2, 3], f32[3], 1)", without the values of scalars.
std::string call_text(const RecordedNode& node);

}  // namespace nxd
