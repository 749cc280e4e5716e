// Graphs made by hand, cut: which stage has what, what travels, and which cuts are rejected.
#include "engine/graph/partition.h"

#include "engine/graph/graph_support.h"

#include "support/check.h"

using namespace nxd_test;
using nxd::GraphNode;
using nxd::GraphValue;
using nxd::kNoValue;
using nxd::ValueId;
using Kind = GraphNode::Kind;
using Ids = std::vector<ValueId>;
using Names = std::vector<std::string>;

namespace {

// Each node gives one value of the node's name.
struct Builder {
  Graph graph;

  ValueId add(Kind kind, const std::string& name, const Ids& inputs, int alias_set = -1) {
    GraphNode node{};
    node.kind = kind;
    node.name = name;
    node.inputs = inputs;
    GraphValue value;
    value.name = name;
    value.id = static_cast<ValueId>(graph.values.size());
    value.producer = static_cast<int>(graph.nodes.size());
    value.shape = {2, 3};
    value.alias_set = alias_set >= 0 ? alias_set : 1000 + value.id;
    node.outputs = {value.id};
    graph.nodes.push_back(node);
    graph.values.push_back(value);
    return value.id;
  }
  ValueId input(const std::string& name, int alias_set = -1) {
    return add(Kind::kInput, name, {}, alias_set);
  }
  // The call of a leaf.
  ValueId layer(const std::string& path, const Ids& inputs,
                const std::string& layer_class = "Layer") {
    const ValueId value = add(Kind::kModule, path, inputs);
    returned(path, layer_class);
    return value;
  }
  ValueId op(const std::string& name, const Ids& inputs, int alias_set = -1, bool writes = false) {
    const ValueId value = add(Kind::kOperator, name, inputs, alias_set);
    graph.nodes.back().writes = writes;
    return value;
  }
  void returned(const std::string& path, const std::string& module_class) {
    graph.calls.push_back({path, module_class, static_cast<int>(graph.nodes.size()) - 1});
  }
};

// x -> 0 -> 1 -> ... in a chain.
Graph chain(int layers) {
  Builder b;
  ValueId value = b.input("x");
  for (int i = 0; i < layers; ++i) value = b.layer("layers." + std::to_string(i), {value});
  b.graph.outputs = {value};
  return b.graph;
}

void bad_cuts(const Graph& graph, const Names& cuts, const std::string& part) {
  refused(NXD_ERROR_INVALID_ARGUMENT, part, [&] { nxd::partition_at(graph, cuts); });
}

void test_a_cut_belongs_to_the_earlier_stage(void**) {
  const Partition p = nxd::partition_at(chain(3), {"layers.0", "layers.1"});
  assert_int_equal(p.stages.size(), 3);
  assert_true(p.stages[0].nodes == (std::vector<int>{0, 1}));
  assert_true(p.stages[1].nodes == (std::vector<int>{2}));
  assert_true(p.stages[2].nodes == (std::vector<int>{3}));
  assert_true(p.stages[0].inputs.empty() && p.stages[0].outputs == (Ids{1}));
  assert_true(p.stages[1].inputs == (Ids{1}) && p.stages[1].outputs == (Ids{2}));
  assert_true(p.stages[2].inputs == (Ids{2}) && p.stages[2].outputs.empty());
  const Partition whole = nxd::partition_at(chain(3), {});
  assert_int_equal(whole.stages.size(), 1);
  assert_int_equal(whole.stages[0].nodes.size(), 4);
}

// A skip over two stages passes through both; an unused value does not leave its stage; inputs and
// constants are not sent, also where they are the graph's outputs.
void test_what_travels(void**) {
  Builder b;
  const ValueId x = b.input("x"), mask = b.input("mask");
  const ValueId first = b.layer("a", {x});
  b.op("unused", {first});
  const ValueId second = b.layer("b", {first, kNoValue});
  const ValueId third = b.layer("c", {second, mask});
  const ValueId last = b.op("add", {third, first, mask});
  b.graph.outputs = {last, second, kNoValue, x};
  const Partition p = nxd::partition_at(b.graph, {"a", "b", "c"});
  assert_int_equal(p.stages.size(), 4);
  assert_true(p.stages[0].outputs == (Ids{first}));
  assert_true(p.stages[1].inputs == (Ids{first}) && p.stages[1].outputs == (Ids{first, second}));
  assert_true(p.stages[2].inputs == (Ids{first, second}));
  assert_true(p.stages[2].outputs == (Ids{first, second, third}));
  assert_true(p.stages[3].inputs == (Ids{first, second, third}) && p.stages[3].outputs.empty());
  assert_true(p.stages[0].nodes == (std::vector<int>{0, 2}));
  assert_true(p.stages[2].nodes == (std::vector<int>{1, 5}));
  assert_true(p.stages[3].nodes == (std::vector<int>{0, 1, 6}));
}

// An entered module ends with its last node; one that is called twice with its last call.
void test_entered_and_repeated_modules(void**) {
  Builder b;
  ValueId value = b.layer("embed", {b.input("x")});
  value = b.op("mul", {value});
  value = b.layer("block.inner", {value});
  value = b.op("add", {value});
  b.returned("block", "Block");
  value = b.layer("embed", {value});
  value = b.layer("head", {value});
  b.graph.outputs = {value};
  assert_true(nxd::partition_at(b.graph, {"block.inner"}).stages[0].nodes ==
              (std::vector<int>{0, 1, 2, 3}));
  assert_true(nxd::partition_at(b.graph, {"block"}).stages[1].nodes == (std::vector<int>{5, 6}));
  assert_true(nxd::partition_at(b.graph, {"embed"}).stages[1].nodes == (std::vector<int>{6}));
}

void test_refused_cuts(void**) {
  const Graph graph = chain(4);
  bad_cuts(graph, {"layers.9"},
           "cuts[0]: the graph calls no module \"layers.9\"; near names: layers.0");
  bad_cuts(graph, {"layers.2.norm"},
           "cuts[0]: \"layers.2.norm\" is inside of \"layers.2\", which is a leaf of the graph");
  bad_cuts(graph, {"layers.1", "layers.1"}, "cuts[1]: \"layers.1\" is named twice");
  bad_cuts(graph, {"layers.2", "layers.0"},
           "cuts[1]: \"layers.0\" is called before \"layers.2\"; cuts come in the order");
  bad_cuts(graph, {"layers.3"},
           "cuts: stage 1 of 2 would be empty, as nothing comes after \"layers.3\"");
  Builder b;
  const ValueId value = b.layer("block.inner", {b.input("x")});
  b.returned("block", "Block");
  b.graph.outputs = {b.layer("head", {value})};
  bad_cuts(b.graph, {"block.inner", "block"},
           "cuts: stage 1 of 3 would be empty, before the cut after \"block\"");
  bad_cuts(Builder().graph, {}, "stage 0 of 1 would be empty, as the graph calls nothing");
}

// Writes within a stage are fine, also to what is sent on later; those to another stage's memory
// are rejected, however they get at it.
void test_writes(void**) {
  const auto graph = [](int written_alias, bool source) {
    Builder b;
    const ValueId x = b.input("x", 1);
    const ValueId y = b.op("y", {x}, 2);
    b.op("view", {y}, 2);
    b.op("y_written", {y}, 2, true);
    b.returned("a", "A");
    const ValueId z = b.op("relu", {y}, 3);
    b.op("z_view", {z}, 3);
    b.op("write", {source ? x : written_alias == 2 ? y : z}, written_alias, true);
    b.returned("b", "B");
    b.graph.outputs = {b.op("last", {z})};
    return b.graph;
  };
  assert_int_equal(nxd::partition_at(graph(3, false), {"a", "b"}).stages.size(), 3);
  bad_cuts(graph(2, false), {"a"},
           "write in \"\" (stage 1) writes to y, which is memory of stage 0");
  bad_cuts(graph(1, true), {"a"},
           "write in \"\" (stage 1) writes to x, which is memory of stage 0");
  assert_int_equal(nxd::partition_at(graph(2, false), {"b"}).stages.size(), 2);
}

void test_even_and_cost_cuts(void**) {
  Builder b;
  ValueId value = b.layer("embed", {b.input("x")}, "Embedding");
  for (int i = 0; i < 5; ++i) value = b.layer("layers." + std::to_string(i), {value});
  value = b.layer("head", {value}, "Head");
  b.graph.outputs = {value};
  assert_true(nxd::even_cuts(b.graph, "Layer", 2) == (Names{"layers.1"}));
  assert_true(nxd::even_cuts(b.graph, "Layer", 1).empty());
  std::vector<double> costs{0, 8, 4, 4, 4, 4, 4, 1};
  assert_true(nxd::cost_cuts(b.graph, "Layer", 2, costs) == (Names{"layers.1"}));
  costs[1] = 0;
  costs[7] = 12;
  assert_true(nxd::cost_cuts(b.graph, "Layer", 2, costs) == (Names{"layers.3"}));
  assert_true(nxd::cost_cuts(b.graph, "Layer", 3, costs) == (Names{"layers.1", "layers.4"}));
  const auto bad = [&](const std::string& part, const std::function<void()>& call) {
    refused(NXD_ERROR_INVALID_ARGUMENT, part, call);
  };
  bad("stages: expected 1 to 5, the number of modules of class Layer, got 6",
      [&] { nxd::even_cuts(b.graph, "Layer", 6); });
  bad("stages: expected 1 to 5", [&] { nxd::cost_cuts(b.graph, "Layer", 0, costs); });
  bad("layer class \"Leyer\": the graph calls no module of it; near names: Layer",
      [&] { nxd::even_cuts(b.graph, "Leyer", 2); });
  bad("costs: expected 8, one for each node, got 1",
      [&] { nxd::cost_cuts(b.graph, "Layer", 2, {1}); });
}

void test_node_costs(void**) {
  Builder b;
  const ValueId x = b.input("x");
  b.layer("a", {x});
  b.graph.nodes[1].flops = 100;
  b.graph.nodes[1].outputs.push_back(kNoValue);
  assert_true(nxd::node_costs(b.graph) == (std::vector<double>{0, 106}));
}

// Tied parameters, read by nodes and inside of leaves, are found by what they are.
void test_shared_parameters(void**) {
  const ModelOracle oracle("gpt2_tiny");
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, Layout{1});
    const at::Tensor ids = at::zeros({1, 8}, at::kLong);
    const Graph graph = nxd::trace(model->value, {ids, ids}, 1, {});
    const Partition p = nxd::partition_at(graph, {"transformer.h.0", "transformer.h.1"});
    NXD_TEST_CHECK(p.shared.size() == 1);
    NXD_TEST_CHECK(p.shared[0].name == "transformer.wte.weight");
    NXD_TEST_CHECK(p.shared[0].stages == (std::vector<int>{0, 2}));
    const auto kept = std::make_shared<Graph>(graph);
    size_t count = 0;
    for (int s = 0; s < 3; ++s) {
      const nxd::StageExecutor stage(kept, p, s);
      count += stage.parameters().size();
      NXD_TEST_CHECK(stage.root_inputs() == (s == 0   ? std::vector<size_t>{0}
                                             : s == 2 ? std::vector<size_t>{1}
                                                      : std::vector<size_t>{}));
    }
    NXD_TEST_CHECK(count == graph.parameters.size() + 1);
    return 0;
  });
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_cut_belongs_to_the_earlier_stage),
      cmocka_unit_test(test_what_travels),
      cmocka_unit_test(test_entered_and_repeated_modules),
      cmocka_unit_test(test_refused_cuts),
      cmocka_unit_test(test_writes),
      cmocka_unit_test(test_even_and_cost_cuts),
      cmocka_unit_test(test_node_costs),
      cmocka_unit_test(test_shared_parameters),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
