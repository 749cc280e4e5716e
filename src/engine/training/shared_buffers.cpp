#include "engine/training/shared_buffers.h"

#include <ATen/ATen.h>

#include <exception>
#include <map>
#include <set>

namespace nxd {
namespace {

// The pipeline's ranks that use each buffer.
std::map<const Buffer*, std::set<int>> users_of_buffers(const Graph& graph,
                                                        const Partition& partition,
                                                        const PipelineShape& shape) {
  std::map<const Buffer*, std::set<int>> users;
  for (size_t stage = 0; stage < partition.stages.size(); ++stage) {
    const int rank = shape.rank_of(static_cast<int>(stage));
    for (const int index : partition.stages[stage].nodes) {
      const GraphNode& node = graph.nodes[slot(index)];
      if (node.buffer) users[node.buffer.get()].insert(rank);
      if (!node.callee) continue;
      for (const NamedBuffer& entry : named_buffers(*node.callee)) {
        users[entry.buffer.get()].insert(rank);
      }
    }
  }
  return users;
}

uint32_t write_count(const at::Tensor& tensor) { return static_cast<uint32_t>(tensor._version()); }

// Without memory to compare them they are taken for alike.
bool differs(const at::Tensor& a, const at::Tensor& b) noexcept {
  try {
    return !at::equal(a, b);
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

SharedBuffers::SharedBuffers(const Module& root, const Graph& graph, const Partition& partition,
                             const PipelineShape& shape, int rank) {
  const auto users = users_of_buffers(graph, partition, shape);
  for (const NamedBuffer& entry : named_buffers(root)) {
    const auto found = users.find(entry.buffer.get());
    const bool is_shared = found != users.end() && found->second.size() > 1;
    if (!is_shared || found->second.count(rank) == 0) continue;
    shared_.push_back({std::make_shared<const std::string>(entry.name), entry.buffer});
  }
}

void SharedBuffers::begin_run() {
  for (Shared& each : shared_) {
    each.tensor = each.buffer->value;
    each.value = each.tensor.detach().clone();
    each.version = write_count(each.tensor);
  }
}

std::shared_ptr<const std::string> SharedBuffers::written() const noexcept {
  for (const Shared& each : shared_) {
    const at::Tensor& now = each.buffer->value;
    if (!now.is_same(each.tensor) || write_count(now) != each.version) return each.name;
    // A batch norm's running statistics change without a new version.
    if (each.value.defined() && now.is_cpu() && differs(now, each.value)) return each.name;
  }
  return nullptr;
}

}  // namespace nxd
