#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "engine/device/recorded_graph.h"

namespace nxd {

// A graph that a compiler has made a program of.
class GraphProgram {
 public:
  GraphProgram() = default;
  virtual ~GraphProgram() = default;
  GraphProgram(const GraphProgram&) = delete;
  GraphProgram& operator=(const GraphProgram&) = delete;

  // Runs a graph of the hash that was compiled; gives the kept results, each with memory of its
  // own, in C order. Threads may call it at the same time. A result whose node overwrites a leaf is
  // the leaf's tensor; has_overwritten: leaves are no longer what they were.
  virtual std::vector<at::Tensor> run(const RecordedGraph& graph, bool* has_overwritten) const = 0;
  // True if the program was found, as an earlier process had compiled it.
  virtual bool was_loaded() const = 0;
};

// Makes a program of a graph's outline.
using GraphCompiler = std::unique_ptr<GraphProgram> (*)(const RecordedGraph& outline);

}  // namespace nxd
