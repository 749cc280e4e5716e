#include "engine/device/graph_text.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace nxd {
namespace {

// As part of a string in double quotes.
std::string escaped_for_dot(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

GraphText::GraphText(const RecordedGraph& graph) : kept_(graph.kept_slots) {
  std::sort(kept_.begin(), kept_.end());
  for (const at::Tensor& leaf : graph.leaves) leaves_.push_back(shape_text(leaf));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node node{graph.first_slots[i], {}, call_text(*graph.nodes[i]), graph.input_slots[i]};
    for (const at::Tensor& result : graph.nodes[i]->call->results) {
      node.results.push_back(shape_text(result));
    }
    nodes_.push_back(std::move(node));
  }
}

std::string GraphText::line(const Node& node) {
  std::string out;
  for (size_t i = 0; i < node.results.size(); ++i) {
    out +=
        text(i == 0 ? "" : ", ", "%", node.first_slot + static_cast<int>(i), " ", node.results[i]);
  }
  out += (out.empty() ? "" : " = ") + node.call;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    out += text(k == 0 ? " of " : ", ", "%", node.inputs[k]);
  }
  return out;
}

std::string GraphText::line_of_slot(int slot) const {
  const auto node = std::find_if(nodes_.rbegin(), nodes_.rend(),
                                 [&](const Node& each) { return each.first_slot <= slot; });
  return node == nodes_.rend() ? text("%", slot) : line(*node);
}

std::string GraphText::lines() const {
  std::string out;
  for (const Node& node : nodes_) out += line(node) + "\n";
  return out;
}

std::string GraphText::dot() const {
  std::string out = "digraph step {\n  node [shape=box];\n";
  std::vector<std::string> owners;  // of each slot
  for (size_t i = 0; i < leaves_.size(); ++i) {
    owners.push_back(text("in", i));
    out += text("  ", owners.back(), " [shape=ellipse, label=\"%", i, " ", leaves_[i], "\"];\n");
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const std::string name = text("n", i);
    owners.insert(owners.end(), node.results.size(), name);
    std::string label;
    for (size_t r = 0; r < node.results.size(); ++r) {
      label += text("%", node.first_slot + static_cast<int>(r), " ", node.results[r], "\\n");
    }
    out += text("  ", name, " [label=\"", label, escaped_for_dot(node.call), "\"];\n");
    for (const int slot : node.inputs) {
      out += text("  ", owners[static_cast<size_t>(slot)], " -> ", name, " [label=\"%", slot,
                  "\"];\n");
    }
  }
  return out + "}\n";
}

std::string GraphText::first_difference(const GraphText& before) const {
  const size_t shared = std::min(before.size(), size());
  for (size_t i = 0; i < shared; ++i) {
    const std::string now = line(nodes_[i]), then = line(before.nodes_[i]);
    if (now != then) return text("node ", i, " is ", now, ", was ", then);
  }
  if (size() > shared) return text("node ", shared, " is new: ", line(nodes_[shared]));
  if (before.size() > shared) {
    return text("node ", shared, " is gone: ", line(before.nodes_[shared]));
  }
  std::vector<int> changed;
  std::set_symmetric_difference(kept_.begin(), kept_.end(), before.kept_.begin(),
                                before.kept_.end(), std::back_inserter(changed));
  if (changed.empty()) return "";
  const bool is_new = std::binary_search(kept_.begin(), kept_.end(), changed[0]);
  return text("%", changed[0], is_new ? " is held" : " is no longer held",
              " at the end of the step: ", line_of_slot(changed[0]));
}

}  // namespace nxd
