#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace nxd {

// The pointer by which a graph holds its nodes: shared_ptr, in later releases of libtorch by
// intrusive_ptr.
using HeldNode = decltype(torch::autograd::Edge::function);
template <class Node>
using Held = std::conditional_t<std::is_same_v<HeldNode, std::shared_ptr<torch::autograd::Node>>,
                                std::shared_ptr<Node>, c10::intrusive_ptr<Node>>;

// A new node for a graph to hold. Long graphs are taken apart without recursion: by deleteNode,
// which later releases do not need and do not have.
template <class Node>
Held<Node> hold(std::unique_ptr<Node> node) {
  if constexpr (std::is_same_v<Held<Node>, std::shared_ptr<Node>>) {
    return Held<Node>(node.release(), [](auto* dead) { deleteNode(dead); });
  } else {
    return Held<Node>::unsafe_steal_from_new(node.release());
  }
}

}  // namespace nxd
