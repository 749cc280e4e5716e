#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/edge.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// An undefined gradient stands for 1, which only a tensor of one element may have.

// Accumulates gradients into the leaves. Runs on the calling thread.
void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& grads,
                  bool retain_graph);

// The same from edges of the graph, whose tensors may be gone; every gradient is defined.
void run_backward_from(const std::vector<torch::autograd::Edge>& edges,
                       const std::vector<at::Tensor>& grads);

// Gradients of the outputs with respect to the inputs; undefined where an input has no influence.
// With create_graph the pass is recorded, so that they can be differentiated in turn.
std::vector<at::Tensor> run_gradients(const std::vector<at::Tensor>& outputs,
                                      const std::vector<at::Tensor>& grads,
                                      const std::vector<at::Tensor>& inputs, bool retain_graph,
                                      bool create_graph = false);

// UNSUPPORTED if the pass under way is recorded, to be differentiated again: for nodes whose own
// backward is not, so that what they give would count as constants.
void check_unrecorded_pass(const std::string& node);

// True if the tensor is a leaf to whose gradient the pass under way adds. Not where the pass hands
// gradients out instead, or where a hook looks at them on their way.
bool pass_adds_to(const at::Tensor& leaf);
// The leaf's gradient, if it can be added to in place; undefined also when there is none yet.
at::Tensor gradient_in_place(const at::Tensor& leaf);
// The same if the pass under way would add to it: then a layer may add to it itself and hand on
// nothing.
at::Tensor gradient_to_add_to(const at::Tensor& leaf);

// Gives the leaf a copy of its gradient if more tensors than so many lie in the gradient's memory.
void own_gradient(const at::Tensor& leaf, size_t tensors = 1);

// Some operators give sparse gradients, as that of an embedding does where it is told to.
// Reductions and updates take dense ones.
void make_dense(at::Tensor& gradient);

void set_requires_grad(at::Tensor& tensor, bool requires_grad);
at::Tensor grad_of(const at::Tensor& tensor);  // undefined when there is none yet
void set_grad(at::Tensor& tensor, const at::Tensor& grad);

}  // namespace nxd
