#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/module/buffers.h"
#include "engine/module/call_path.h"
#include "engine/module/module.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {

// A tensor in a traced forward, by its place in Graph::values.
using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

// The place of a value, node or stage in its vector.
inline size_t slot(int index) { return static_cast<size_t>(index); }

struct GraphValue {
  std::string name;  // unique in the graph, such as "layers_3" or "add_1"
  ValueId id = kNoValue;
  int producer = -1;  // node
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool needs_grad = false;
  // Values that may share memory have one number; an operator that writes to one writes to all.
  int alias_set = 0;
};

struct GraphNode {
  enum class Kind {
    kInput,      // of the root's forward
    kParameter,  // read outside of leaves
    kConstant,   // a tensor that was there before the trace
    kModule,     // call of a leaf
    kOperator,   // call through the dispatcher
    kFunction,   // call of an OpaqueFunction
  };
  Kind kind;
  std::string name;    // of the module, operator or function, as a reader would look for it
  std::string module;  // path of the innermost module whose forward this is part of; "" the root's
  // kNoValue: left out. An operator has the tensors among its arguments, in order: see
  // operator_arguments.h.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  size_t input_index = 0;                // kInput: of the root
  std::shared_ptr<Parameter> parameter;  // kParameter
  at::Tensor constant;                   // kConstant
  std::shared_ptr<Buffer> buffer;        // kConstant: whose value it is, wherever that lies later
  std::shared_ptr<Module> callee;        // kModule
  OpaqueFunction function;               // kFunction
  // kOperator: the arguments, with an undefined tensor wherever a value goes.
  c10::optional<c10::OperatorHandle> op;
  std::vector<c10::IValue> arguments;
  bool writes = false;  // changes one of its inputs

  // The thread's settings while this ran.
  bool grad_mode = true;
  bool own_products = false;  // see engine/own_products.h
  nxd_dtype_t autocast = NXD_DTYPE_INVALID;
  CallPath call_path;  // of the module that is called, or whose forward this is part of
  double flops = 0;    // of its matrix products and convolutions, one pass forwards

  // Inputs, parameters and constants, which are no calls: they are wherever they are used.
  bool is_source() const {
    return kind == Kind::kInput || kind == Kind::kParameter || kind == Kind::kConstant;
  }
};

// A module that was called outside of leaves, and which node was the last one when it returned.
struct ModuleCall {
  std::string path, class_name;
  int last_node = -1;
};

// A module's forward, as nodes in the order they ran in.
struct Graph {
  std::vector<std::string> input_names;
  std::vector<GraphNode> nodes;
  std::vector<GraphValue> values;
  std::vector<ValueId> outputs;            // of the root; kNoValue: left out
  std::vector<std::string> output_paths;   // of these, and of others that the root can give
  std::vector<ModuleCall> calls;           // in the order they returned in; the root's is not here
  std::vector<NamedParameter> parameters;  // of the root, each once, by canonical name

  // A line for each node.
  std::string to_text() const;
  // For Graphviz.
  std::string to_dot() const;
};

// Writes the graph as text, or as DOT if the path ends in ".dot": whole or not at all.
void write_graph(const Graph& graph, const std::string& path);

}  // namespace nxd
