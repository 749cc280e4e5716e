#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace nxd {

// The nodes of a graph and of the blocks in it; of one kind, if that is given.
std::vector<torch::jit::Node*> nodes_of(torch::jit::Graph& graph,
                                        std::optional<c10::Symbol> kind = std::nullopt);

// The graph and those of the tasks that its code forks, at any depth. A copy of a graph has these
// in common with it: they become its own, with functions in their places.
std::vector<torch::jit::Graph*> graphs_with_forks(torch::jit::Graph& graph);

// Puts a node of this kind in the place of one, both of one output.
void replace_node(torch::jit::Node& node, c10::Symbol kind,
                  at::ArrayRef<torch::jit::Value*> inputs);

// True if the operator of the node writes to the tensor, list or dictionary that this input is.
bool writes_to_input(const torch::jit::Node& node, size_t input);

}  // namespace nxd
