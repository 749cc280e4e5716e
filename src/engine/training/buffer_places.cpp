#include "engine/training/buffer_places.h"

#include <map>

#include "engine/module/module_tree.h"

namespace nxd {
namespace {

struct Users {
  std::map<const Buffer*, std::set<int>> of_buffers;
  std::map<const Parameter*, std::set<int>> of_parameters;
};

void add_users(const GraphNode& node, int rank, Users& users) {
  if (node.buffer) users.of_buffers[node.buffer.get()].insert(rank);
  if (node.parameter) users.of_parameters[node.parameter.get()].insert(rank);
  if (!node.callee) return;
  for (const NamedBuffer& entry : named_buffers(*node.callee)) {
    users.of_buffers[entry.buffer.get()].insert(rank);
  }
  for (const NamedParameter& entry : named_parameters(*node.callee)) {
    users.of_parameters[entry.parameter.get()].insert(rank);
  }
}

Users users_of(const Graph& graph, const Partition& partition, const PipelineShape& shape) {
  Users users;
  for (size_t stage = 0; stage < partition.stages.size(); ++stage) {
    const int rank = shape.rank_of(static_cast<int>(stage));
    for (const int index : partition.stages[stage].nodes) {
      add_users(graph.nodes[slot(index)], rank, users);
    }
  }
  return users;
}

// The first rank that uses a parameter of the buffer's module, so that the module stays in one
// piece.
int rank_of_module(const Module& root, const std::string& buffer, const Users& users) {
  const std::string prefix = buffer.substr(0, buffer.rfind('.') + 1);
  std::set<int> ranks{};
  for (const NamedParameter& entry : named_parameters(root)) {
    const auto found = users.of_parameters.find(entry.parameter.get());
    if (!entry.name.starts_with(prefix) || found == users.of_parameters.end()) continue;
    ranks.insert(found->second.begin(), found->second.end());
  }
  return ranks.empty() || prefix.empty() ? 0 : *ranks.begin();
}

}  // namespace

std::vector<BufferPlace> buffer_places(const Module& root, const Graph& graph,
                                       const Partition& partition, const PipelineShape& shape) {
  const Users users = users_of(graph, partition, shape);
  std::vector<BufferPlace> places;
  for (NamedBuffer& entry : named_buffers(root)) {
    const auto found = users.of_buffers.find(entry.buffer.get());
    places.push_back({std::move(entry), {}, {}, {}});
    BufferPlace& place = places.back();
    if (found != users.of_buffers.end()) place.users = found->second;
    place.keepers = place.users;
    if (place.keepers.empty()) place.keepers = {rank_of_module(root, place.named.name, users)};
  }
  for (BufferPlace& place : places) {
    for (const BufferPlace& other : places) {
      if (!share_memory(place.named.buffer->value, other.named.buffer->value)) continue;
      place.copies.insert(other.users.begin(), other.users.end());
    }
  }
  return places;
}

}  // namespace nxd
