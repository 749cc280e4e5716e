#include "engine/models/torchscript_nodes.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <memory>

namespace nxd {
namespace {

namespace jit = torch::jit;

void collect(jit::Block* block, std::optional<c10::Symbol> kind, std::vector<jit::Node*>& out) {
  for (jit::Node* node : block->nodes()) {
    if (!kind || node->kind() == *kind) out.push_back(node);
    for (jit::Block* inner : node->blocks()) collect(inner, kind, out);
  }
}

void collect(jit::Graph& graph, std::vector<jit::Graph*>& out) {
  out.push_back(&graph);
  for (jit::Node* fork : nodes_of(graph, c10::prim::fork)) {
    const std::shared_ptr<jit::Graph> own = fork->g(c10::attr::Subgraph)->copy();
    jit::Inline(*own);
    fork->g_(c10::attr::Subgraph, own);
    collect(*own, out);
  }
}

}  // namespace

std::vector<jit::Node*> nodes_of(jit::Graph& graph, std::optional<c10::Symbol> kind) {
  std::vector<jit::Node*> out;
  collect(graph.block(), kind, out);
  return out;
}

std::vector<jit::Graph*> graphs_with_forks(jit::Graph& graph) {
  std::vector<jit::Graph*> out;
  collect(graph, out);
  return out;
}

void replace_node(jit::Node& node, c10::Symbol kind, at::ArrayRef<jit::Value*> inputs) {
  jit::Node* const made = node.owningGraph()->create(kind, inputs);
  made->output()->setType(node.output()->type());
  made->insertBefore(&node);
  node.output()->replaceAllUsesWith(made->output());
  node.destroy();
}

bool writes_to_input(const jit::Node& node, size_t input) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (!schema || input >= schema->arguments().size()) return false;
  const c10::AliasInfo* const alias = schema->arguments()[input].alias_info();
  return alias && alias->isWrite();
}

}  // namespace nxd
