#include "engine/models/torchscript_random.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/inliner.h>

namespace nxd {
namespace {

namespace jit = torch::jit;

std::optional<RandomOperator> random_operator_in(const jit::Block& block);

// The same of code whose functions are not in their places yet.
std::optional<RandomOperator> random_operator_in(jit::Graph& graph) {
  const auto whole = graph.copy();
  jit::Inline(*whole);
  return random_operator_in(*whole->block());
}

std::optional<RandomOperator> random_operator_of(const jit::Node& node) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  const std::string name = node.kind().toQualString();
  if (name.rfind("nxd::", 0) == 0) return std::nullopt;
  bool drops = name.find("dropout") != std::string::npos;
  bool none = false;
  for (size_t i = 0; schema && i < schema->arguments().size(); ++i) {
    const std::string& argument = schema->arguments()[i].name();
    const bool is_dropout = argument.rfind("dropout", 0) == 0;  // of a recurrence, of attention
    if (!is_dropout && !(drops && argument == "p")) continue;
    drops = true;
    const auto probability = jit::toIValue(node.input(i));
    none = probability && probability->isDouble() && probability->toDouble() == 0;
  }
  if ((drops && !none) || (!drops && node.isNondeterministic())) return {{name, drops}};
  return std::nullopt;
}

std::optional<RandomOperator> random_operator_in(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    for (const jit::Block* inner : node->blocks()) {
      if (auto found = random_operator_in(*inner)) return found;
    }
    if (node->hasAttribute(c10::attr::Subgraph)) {  // a fork's
      if (auto found = random_operator_in(*node->g(c10::attr::Subgraph))) return found;
    }
    if (auto found = random_operator_of(*node)) return found;
  }
  return std::nullopt;
}

bool chooses_submodules(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::CallMethod) return true;
    for (const jit::Block* inner : node->blocks()) {
      if (chooses_submodules(*inner)) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<RandomOperator> find_random_operator(const jit::Graph& graph,
                                                   const jit::Module& script) {
  if (auto found = random_operator_in(*graph.block())) return found;
  if (!chooses_submodules(*graph.block())) return std::nullopt;
  for (const jit::Module& each : script.modules()) {
    for (const jit::Method& method : each.get_methods()) {
      const jit::GraphFunction* const function = jit::tryToGraphFunction(method.function());
      if (!function) continue;
      if (auto found = random_operator_in(*function->graph())) return found;
    }
  }
  return std::nullopt;
}

}  // namespace nxd
