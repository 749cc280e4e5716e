#pragma once

#include <torch/csrc/jit/ir/ir.h>

// libtorch's interpreter copies numbers and lists of the code to the memory of new tensors, and out
// of tensors, by itself: no dispatcher, and so no trace, sees it.
namespace nxd {

// In a trace, tensors of numbers and lists get their contents in each run of it. Behind
// ask_for_devices, which finds the devices that they name.
void make_host_tensors(torch::jit::Graph& graph);

// A trace refuses to read a tensor without values as a list.
void check_reads_as_lists(torch::jit::Graph& graph);

}  // namespace nxd
