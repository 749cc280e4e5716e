#include "engine/graph/graph.h"

#include <ATen/ATen.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/checkpoint/file.h"
#include "engine/device/operator_arguments.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

using Kind = GraphNode::Kind;

std::string joined(const std::vector<std::string>& parts) {
  std::string result;
  for (const std::string& part : parts) result += (result.empty() ? "" : ", ") + part;
  return result;
}

std::string value_name(const Graph& graph, ValueId value) {
  return value == kNoValue ? "none" : graph.values[slot(value)].name;
}

std::vector<std::string> value_names(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> names;
  for (const ValueId value : values) names.push_back(value_name(graph, value));
  return names;
}

std::string type_text(const GraphValue& value) {
  std::vector<std::string> sizes;
  for (const int64_t size : value.shape) sizes.push_back(std::to_string(size));
  return std::string(dtype_text(value.dtype)) + "[" + joined(sizes) + "]" +
         (value.needs_grad ? " grad" : "");
}

// An operator's arguments as in its schema, with the names of values in their places.
std::string argument_text(const Graph& graph, const GraphNode& node) {
  std::vector<std::string> parts;
  size_t next = 0;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    std::vector<std::string> tensors;
    for_each_tensor({node.arguments[i]}, [&](const at::Tensor&) {
      tensors.push_back(value_name(graph, node.inputs[next++]));
    });
    if (node.arguments[i].isTensor()) {
      parts.push_back(tensors[0]);
    } else if (node.arguments[i].isTensorList() || is_optional_tensor_list(node.arguments[i])) {
      parts.push_back("[" + joined(tensors) + "]");
    } else {
      parts.push_back(text(node.arguments[i]));
    }
  }
  return joined(parts);
}

std::string call_text(const Graph& graph, const GraphNode& node) {
  const std::string inputs = "(" + joined(value_names(graph, node.inputs)) + ")";
  switch (node.kind) {
    case Kind::kInput: return "input " + std::to_string(node.input_index);
    case Kind::kParameter: return "parameter " + node.name;
    case Kind::kConstant: return "constant";
    case Kind::kModule:
      return "module " + (node.name.empty() ? "root" : node.name) + inputs + " : " +
             (node.callee ? node.callee->class_name() : "");
    case Kind::kFunction: return "function " + node.name + inputs;
    case Kind::kOperator:
      return node.name + (node.op ? "(" + argument_text(graph, node) + ")" : inputs) +
             (node.writes ? " writes" : "");
  }
  return "";
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

std::string Graph::to_text() const {
  std::string result = "inputs: " + joined(input_names) + "\n";
  for (const GraphNode& node : nodes) {
    std::vector<std::string> outputs;
    for (const ValueId value : node.outputs) {
      outputs.push_back(value == kNoValue
                            ? "none"
                            : values[slot(value)].name + ": " + type_text(values[slot(value)]));
    }
    result += (outputs.empty() ? "" : joined(outputs) + " = ") + call_text(*this, node);
    if (!node.grad_mode) result += " without grad";
    if (node.autocast != NXD_DTYPE_INVALID) {
      result += std::string(" autocast ") + dtype_name(node.autocast);
    }
    if (!node.is_source() && !node.module.empty()) result += "  # in " + node.module;
    result += "\n";
  }
  return result + "outputs: " + joined(value_names(*this, outputs)) + "\n";
}

std::string Graph::to_dot() const {
  std::string result = "digraph {\n  node [shape=box];\n";
  const auto id = [](size_t node) { return "n" + std::to_string(node); };
  for (size_t i = 0; i < nodes.size(); ++i) {
    const GraphNode& node = nodes[i];
    const char* style = node.is_source()               ? ", shape=ellipse"
                        : node.kind == Kind::kModule   ? ", style=bold"
                        : node.kind == Kind::kFunction ? ", style=rounded"
                                                       : "";
    result +=
        "  " + id(i) + " [label=" + quoted(node.name.empty() ? "root" : node.name) + style + "];\n";
    for (const ValueId value : node.inputs) {
      if (value == kNoValue) continue;
      result += "  " + id(slot(values[slot(value)].producer)) + " -> " + id(i) +
                " [label=" + quoted(type_text(values[slot(value)])) + "];\n";
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNoValue) continue;
    const std::string out = "out" + std::to_string(i);
    result += "  " + out + " [label=" + quoted("output " + std::to_string(i)) +
              ", shape=ellipse];\n  " + id(slot(values[slot(outputs[i])].producer)) + " -> " + out +
              " [label=" + quoted(type_text(values[slot(outputs[i])])) + "];\n";
  }
  return result + "}\n";
}

void write_graph(const Graph& graph, const std::string& path) {
  const std::string content = path.ends_with(".dot") ? graph.to_dot() : graph.to_text();
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

}  // namespace nxd
