#include "engine/graph/partition.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/suggestions.h"
#include "core/planner/split_points.h"
#include "engine/module/module_tree.h"

namespace nxd {
namespace {

// The calls of a class, or of all modules, each path where it returned last.
std::vector<ModuleCall> last_calls(const Graph& graph, const std::string* class_name = nullptr) {
  std::vector<ModuleCall> result;
  std::set<std::string> seen;
  for (auto call = graph.calls.rbegin(); call != graph.calls.rend(); ++call) {
    if (class_name && call->class_name != *class_name) continue;
    if (seen.insert(call->path).second) result.push_back(*call);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

// The leaf that has a module of that path inside, or null.
const std::string* leaf_around(const Graph& graph, const std::string& path) {
  for (const GraphNode& node : graph.nodes) {
    if (node.kind == GraphNode::Kind::kModule && path.starts_with(node.name + ".")) {
      return &node.name;
    }
  }
  return nullptr;
}

[[noreturn]] void fail_without_call(const Graph& graph, const std::vector<ModuleCall>& calls,
                                    size_t i, const std::string& cut) {
  const std::string* const leaf = leaf_around(graph, cut);
  check_argument(!leaf, "cuts[", i, "]: \"", cut, "\" is inside of \"", leaf ? *leaf : "",
                 "\", which is a leaf of the graph, so that stages have it as a whole");
  std::vector<std::string> known;
  for (const ModuleCall& call : calls) known.push_back(call.path);
  fail(NXD_ERROR_INVALID_ARGUMENT, "cuts[", i, "]: the graph calls no module \"", cut, "\"",
       suggestions(cut, known));
}

// The last node of each stage but the last.
std::vector<int> cut_nodes(const Graph& graph, const std::vector<std::string>& cuts) {
  const std::vector<ModuleCall> calls = last_calls(graph);
  std::vector<int> result;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const auto call = std::find_if(calls.begin(), calls.end(),
                                   [&](const ModuleCall& c) { return c.path == cuts[i]; });
    if (call == calls.end()) fail_without_call(graph, calls, i, cuts[i]);
    check_argument(std::find(cuts.begin(), cuts.begin() + static_cast<ptrdiff_t>(i), cuts[i]) ==
                       cuts.begin() + static_cast<ptrdiff_t>(i),
                   "cuts[", i, "]: \"", cuts[i], "\" is named twice");
    check_argument(result.empty() || call->last_node >= result.back(), "cuts[", i, "]: \"", cuts[i],
                   "\" is called before \"", i ? cuts[i - 1] : "",
                   "\"; cuts come in the order that the model runs in");
    result.push_back(call->last_node);
  }
  return result;
}

// The work of partition_at.
class Cutter {
 public:
  Cutter(const Graph& graph, const std::vector<std::string>& cuts)
      : graph_(graph),
        cuts_(cuts),
        ends_(cut_nodes(graph, cuts)),
        used_by_(graph.values.size()),
        stage_of_(graph.nodes.size(), -1) {
    find_stages();
    find_uses();
    check_writes();
    place_nodes();
    place_values();
    find_shared();
  }

  Partition take() { return std::move(result_); }

 private:
  int stages() const { return static_cast<int>(ends_.size()) + 1; }

  void find_stages() {
    std::vector<bool> has_call(slot(stages()));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].is_source()) continue;
      const auto before = [&](int end) { return end < static_cast<int>(i); };
      stage_of_[i] = static_cast<int>(std::count_if(ends_.begin(), ends_.end(), before));
      has_call[slot(stage_of_[i])] = true;
    }
    for (size_t s = 0; s < has_call.size(); ++s) {
      check_argument(has_call[s], "cuts: stage ", s, " of ", stages(), " would be empty, ",
                     s < cuts_.size() ? text("before the cut after \"", cuts_[s], "\"")
                     : cuts_.empty()  ? std::string("as the graph calls nothing")
                                      : text("as nothing comes after \"", cuts_.back(), "\""));
    }
  }

  void find_uses() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId value : graph_.nodes[i].inputs) {
        if (value != kNoValue) used_by_[slot(value)].insert(stage_of_[i]);
      }
    }
    for (const ValueId value : graph_.outputs) {
      if (value != kNoValue) used_by_[slot(value)].insert(stages() - 1);
    }
  }

  // A stage works on copies of what stages before it have made, and on inputs, parameters and
  // constants of its own: it must not write to what others have too.
  void check_writes() const {
    struct Places {
      std::set<int> made, sources;  // stages
    };
    std::map<int, Places> places;  // by alias set
    for (const GraphValue& value : graph_.values) {
      const int made_in = stage_of_[slot(value.producer)];
      const std::set<int>& users = used_by_[slot(value.id)];
      Places& of_set = places[value.alias_set];
      if (made_in >= 0) of_set.made.insert(made_in);
      if (made_in < 0) of_set.sources.insert(users.begin(), users.end());
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      if (!node.writes) continue;
      for (const ValueId value : node.inputs) {
        if (value == kNoValue || !is_written(node, graph_.values[slot(value)])) continue;
        const GraphValue& written = graph_.values[slot(value)];
        const Places& of_set = places.at(written.alias_set);
        int other = stage_of_[i];
        for (const int stage : of_set.sources) other = stage != stage_of_[i] ? stage : other;
        if (!of_set.made.empty()) other = std::min(other, *of_set.made.begin());
        check_argument(other == stage_of_[i], "cuts: ", node.name, " in \"", node.module,
                       "\" (stage ", stage_of_[i], ") writes to ", written.name,
                       ", which is memory of stage ", other,
                       " too; cut elsewhere, or use an operator that gives a new tensor");
      }
    }
  }

  // True if the value's memory is that of a result: what the operator writes to it also gives.
  bool is_written(const GraphNode& node, const GraphValue& input) const {
    return node.outputs.empty() ||
           std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
             return output != kNoValue && graph_.values[slot(output)].alias_set == input.alias_set;
           });
  }

  void place_nodes() {
    result_.stages.resize(slot(stages()));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto add = [&](int stage) {
        result_.stages[slot(stage)].nodes.push_back(static_cast<int>(i));
      };
      if (stage_of_[i] >= 0) {
        add(stage_of_[i]);
      } else {
        for (const int stage : used_by_[slot(graph_.nodes[i].outputs[0])]) add(stage);
      }
    }
  }

  // A value goes through every stage between the one that gives it and the last that uses it.
  void place_values() {
    for (const GraphValue& value : graph_.values) {
      const int from = stage_of_[slot(value.producer)];
      const std::set<int>& users = used_by_[slot(value.id)];
      if (from < 0 || users.empty()) continue;
      for (int s = from; s < *users.rbegin(); ++s) {
        result_.stages[slot(s)].outputs.push_back(value.id);
        result_.stages[slot(s + 1)].inputs.push_back(value.id);
      }
    }
  }

  void find_shared() {
    std::unordered_map<const Parameter*, std::set<int>> users;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      if (node.kind == GraphNode::Kind::kParameter) {
        const std::set<int>& stages = used_by_[slot(node.outputs[0])];
        users[node.parameter.get()].insert(stages.begin(), stages.end());
      } else if (node.callee) {
        for (const NamedParameter& entry : named_parameters(*node.callee)) {
          users[entry.parameter.get()].insert(stage_of_[i]);
        }
      }
    }
    for (const NamedParameter& entry : graph_.parameters) {
      const auto found = users.find(entry.parameter.get());
      if (found == users.end() || found->second.size() < 2) continue;
      result_.shared.push_back({entry.name, {found->second.begin(), found->second.end()}});
    }
  }

  const Graph& graph_;
  const std::vector<std::string>& cuts_;
  std::vector<int> ends_;
  std::vector<std::set<int>> used_by_;  // stages, by value
  std::vector<int> stage_of_;           // by node; -1: a source
  Partition result_;
};

bool has_inside(const Module& module, const std::string& class_name) {
  return std::any_of(module.children().begin(), module.children().end(), [&](const auto& child) {
    return child.second->class_name() == class_name || has_inside(*child.second, class_name);
  });
}

[[noreturn]] void fail_without_layers(const Graph& graph, const std::string& layer_class) {
  for (const GraphNode& node : graph.nodes) {
    check_argument(!node.callee || !has_inside(*node.callee, layer_class), "layer class \"",
                   layer_class, "\": modules of it are inside of \"", node.name,
                   "\", which is a leaf of the graph, so that stages have it as a whole");
  }
  std::set<std::string> known;
  for (const ModuleCall& call : graph.calls) known.insert(call.class_name);
  fail(NXD_ERROR_INVALID_ARGUMENT, "layer class \"", layer_class,
       "\": the graph calls no module of it",
       suggestions(layer_class, {known.begin(), known.end()}));
}

// The modules of a class in the order they return in.
std::vector<ModuleCall> layers_of(const Graph& graph, const std::string& layer_class, int stages) {
  const std::vector<ModuleCall> layers = last_calls(graph, &layer_class);
  if (layers.empty()) fail_without_layers(graph, layer_class);
  check_argument(stages >= 1 && slot(stages) <= layers.size(), "stages: expected 1 to ",
                 layers.size(), ", the number of modules of class ", layer_class, ", got ", stages);
  return layers;
}

std::vector<std::string> names_of(const std::vector<ModuleCall>& layers,
                                  const std::vector<int>& points) {
  std::vector<std::string> names;
  for (const int point : points) names.push_back(layers[slot(point)].path);
  return names;
}

}  // namespace

Partition partition_at(const Graph& graph, const std::vector<std::string>& cuts) {
  return Cutter(graph, cuts).take();
}

std::vector<std::string> even_cuts(const Graph& graph, const std::string& layer_class, int stages) {
  const std::vector<ModuleCall> layers = layers_of(graph, layer_class, stages);
  return names_of(layers, even_split_points(static_cast<int>(layers.size()), stages));
}

std::vector<std::string> cost_cuts(const Graph& graph, const std::string& layer_class, int stages,
                                   const std::vector<double>& costs) {
  check_argument(costs.size() == graph.nodes.size(), "costs: expected ", graph.nodes.size(),
                 ", one for each node, got ", costs.size());
  const std::vector<ModuleCall> layers = layers_of(graph, layer_class, stages);
  // Nodes before the first layer go with it; nodes after the last layer can be cut off.
  std::vector<double> items;
  size_t node = 0;
  const auto add = [&](size_t end) {
    items.push_back(0);
    for (; node < end; ++node) items.back() += costs[node];
  };
  for (const ModuleCall& layer : layers) add(slot(layer.last_node) + 1);
  const bool has_tail =
      std::any_of(graph.nodes.begin() + static_cast<ptrdiff_t>(node), graph.nodes.end(),
                  [](const GraphNode& n) { return !n.is_source(); });
  if (has_tail) add(graph.nodes.size());
  return names_of(layers, balanced_split_points(items, stages));
}

std::vector<double> node_costs(const Graph& graph) {
  std::vector<double> costs;
  for (const GraphNode& node : graph.nodes) {
    double cost = node.flops;
    for (const ValueId output : node.is_source() ? std::vector<ValueId>() : node.outputs) {
      if (output == kNoValue) continue;
      double elements = 1;
      for (const int64_t size : graph.values[slot(output)].shape) {
        elements *= static_cast<double>(size);
      }
      cost += elements;
    }
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace nxd
