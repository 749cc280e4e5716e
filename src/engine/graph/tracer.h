#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/ops/autocast.h"

namespace nxd {

struct TraceOptions {
  // Modules of these classes, or of these paths from the root, are called as a whole. One without
  // children, or of which Module::is_leaf holds, is a leaf anyway.
  std::vector<std::string> leaf_classes, leaf_paths;
  // Names of the root's inputs, for messages and the graph; "input_0" and so on without.
  std::vector<std::string> input_names;
  // Asked for every module that is no leaf anyway, with what the lists say, if there is such a
  // rule.
  std::function<bool(Module& module, const std::string& path, bool is_leaf)> leaf_rule = nullptr;
  // The lists of the device that the forward will run on; by default those of the inputs' device.
  std::optional<CastLists> cast_lists{};
};

// Runs the root's forward on tensors without data, of the shapes and dtypes of inputs (an undefined
// one is left out), and gives what it did, under this thread's automatic casts. INVALID_STATE when
// a value is read on the way: the message names the module and the operation. UNSUPPORTED for an
// operator without a shape function. INVALID_ARGUMENT for leaves that the root does not have.
// Nothing is communicated. n_outputs may be Module::kAllOutputs.
Graph trace(const std::shared_ptr<Module>& root, const Module::Tensors& inputs, size_t n_outputs,
            const TraceOptions& options);

}  // namespace nxd
