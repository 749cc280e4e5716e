#include "engine/device/recorded_node.h"

#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "core/base/text_stream.h"
#include "engine/dtype.h"

namespace nxd {
// A chain of nodes is as long as the step: it is taken apart in a loop, not by recursion.
RecordedNode::~RecordedNode() {
  c10::SmallVector<NodeResult, 16> pending(std::make_move_iterator(inputs.begin()),
                                           std::make_move_iterator(inputs.end()));
  while (!pending.empty()) {
    const std::shared_ptr<RecordedNode> node = std::move(pending.back().node);
    pending.pop_back();
    if (!node || node.use_count() > 1) continue;
    for (NodeResult& input : node->inputs) pending.push_back(std::move(input));
    node->inputs.clear();
  }
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return text(dtype_text(tensor.scalar_type()), tensor.sizes());
}

std::string call_text(const RecordedNode& node) {
  if (node.is_leaf()) return "input " + shape_text(node.leaf);
  TextWriter out;
  out << node.call->op->name << '(';
  const char* comma = "";
  for (const NodeResult& input : node.inputs) {
    const RecordedNode& from = *input.node;
    const auto index = static_cast<size_t>(input.index);
    out << comma << shape_text(from.is_leaf() ? from.leaf : from.call->results[index]);
    comma = ", ";
  }
  for (size_t i = 0; i < node.call->arguments.size(); ++i) {
    const c10::IValue& argument = node.call->arguments[i];
    if (argument.isNone() || argument.isDevice()) continue;
    out << comma;
    if (node.call->op->is_scalar[i]) {
      out << "scalar";
    } else {
      out << argument;
    }
    comma = ", ";
  }
  if (!node.call->attributes.empty()) out << comma << node.call->attributes;
  out << ')';
  check_stream(out);
  return out.str();
}

}  // namespace nxd
