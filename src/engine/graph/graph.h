#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/device/call_recorder.h"
#include "engine/nn/module.h"

namespace nxd {

// A tensor in a traced forward, by its place in Graph::values.
using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

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
    kFunction,   // call of a WholeFunction
  };
  Kind kind;
  std::string name;    // of the module, operator or function, as a reader would look for it
  std::string module;  // path of the innermost module whose forward this is part of; "" the root's
  std::vector<ValueId>
      inputs;  // kNoValue: left out. Tensors among an operator's arguments, in order
  std::vector<ValueId> outputs;

  size_t input_index = 0;                // kInput: of the root
  std::shared_ptr<Parameter> parameter;  // kParameter
  at::Tensor constant;                   // kConstant
  std::shared_ptr<Module> callee;        // kModule
  WholeFunction function;                // kFunction
  // kOperator: the arguments, with an empty tensor wherever a value goes.
  c10::optional<c10::OperatorHandle> op;
  std::vector<c10::IValue> arguments;
  bool writes = false;  // changes one of its inputs
};

// What a module's forward does, as nodes in the order they ran in.
struct Graph {
  std::vector<std::string> input_names;
  std::vector<GraphNode> nodes;
  std::vector<GraphValue> values;
  std::vector<ValueId> outputs;  // of the root; kNoValue: left out

  std::string to_text() const;
  std::string to_dot() const;
};

}  // namespace nxd
