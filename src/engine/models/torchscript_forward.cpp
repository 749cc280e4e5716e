#include "engine/models/torchscript_forward.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/OperatorOptions.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/device/device_tensor.h"
#include "engine/models/torchscript_gradients.h"
#include "engine/models/torchscript_host_data.h"
#include "engine/models/torchscript_nodes.h"
#include "engine/models/torchscript_recurrence.h"
#include "engine/models/torchscript_values.h"
#include "engine/ops/on_views_scope.h"

namespace nxd {
namespace {

namespace jit = torch::jit;
using Path = TorchscriptForward::Path;

// A run of this thread, the innermost one. libtorch turns exceptions that pass its interpreter into
// others, so the one of a hook is kept beside it.
struct Run {
  const TorchscriptForward::Hooks* hooks;
  std::exception_ptr failure;

  template <class Body>
  void keep_failure_of(const Body& body) {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
      throw;
    }
  }
};

thread_local Run* run_of_thread = nullptr;

// A task that the code forks is done where it is forked: on another thread it would find no run,
// and neither would what comes after a wait for it.
void run_at_once(std::function<void()> task) { task(); }

class RunScope {
 public:
  explicit RunScope(Run& run) : outer_(std::exchange(run_of_thread, &run)) {}
  ~RunScope() { run_of_thread = outer_; }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  Run* outer_;
};

void call_submodule(jit::Stack& stack) {
  Run& run = *run_of_thread;
  const c10::IValue given = jit::pop(stack);
  std::vector<at::Tensor> inputs;
  for (const c10::IValue& each : given.toListRef()) {
    inputs.push_back(each.isTensor() ? each.toTensor() : at::Tensor());
  }
  const auto n_outputs = static_cast<size_t>(jit::pop(stack).toInt());
  const auto callee = static_cast<size_t>(jit::pop(stack).toInt());
  run.keep_failure_of([&] {
    std::vector<at::Tensor> outputs = run.hooks->call(callee, inputs, n_outputs);
    check_internal(outputs.size() == n_outputs, "submodule: expected ", n_outputs, " outputs, got ",
                   outputs.size());
    jit::push(stack, std::move(outputs));
  });
}

// The place in a list, -1 for none.
std::optional<size_t> index_or_none(int64_t index) {
  return index < 0 ? std::nullopt : std::optional<size_t>(static_cast<size_t>(index));
}

void run_dropout(jit::Stack& stack) {
  Run& run = *run_of_thread;
  ScriptDropout dropout;
  const int64_t mode = jit::pop(stack).toInt();
  dropout.of_channels = jit::pop(stack).toBool();
  dropout.in_place = jit::pop(stack).toBool();
  dropout.is_on = jit::pop(stack).toBool();
  dropout.p = jit::pop(stack).toDouble();
  dropout.input = jit::pop(stack).toTensor();
  run.keep_failure_of([&] { jit::push(stack, run.hooks->drop(dropout, index_or_none(mode))); });
}

// Several states are those of an LSTM, which has a list of them.
void run_recurrent_layers(jit::Stack& stack) {
  Run& run = *run_of_thread;
  ScriptRecurrence r;
  ScriptDropout dropout;
  r.cell = static_cast<ScriptRecurrence::Cell>(jit::pop(stack).toInt());
  const int64_t mode = jit::pop(stack).toInt();
  r.batch_first = jit::pop(stack).toBool();
  r.bidirectional = jit::pop(stack).toBool();
  dropout.is_on = r.is_training = jit::pop(stack).toBool();
  dropout.p = jit::pop(stack).toDouble();
  r.layers = jit::pop(stack).toInt();
  r.has_biases = jit::pop(stack).toBool();
  r.parameters = jit::pop(stack).toTensorVector();
  const c10::IValue states = jit::pop(stack);
  r.states =
      states.isTensor() ? std::vector<at::Tensor>{states.toTensor()} : states.toTensorVector();
  r.input = jit::pop(stack).toTensor();
  run.keep_failure_of([&] {
    const auto drop = [&](const at::Tensor& x) {
      ScriptDropout of_layer = dropout;
      of_layer.input = x;
      return run.hooks->drop(of_layer, index_or_none(mode));
    };
    for (at::Tensor& result : run_recurrence(r, drop)) jit::push(stack, std::move(result));
  });
}

void run_draw(jit::Stack& stack) {
  Run& run = *run_of_thread;
  ScriptDraw draw;
  draw.second = jit::pop(stack).toDouble();
  draw.first = jit::pop(stack).toDouble();
  draw.kind = static_cast<ScriptDraw::Kind>(jit::pop(stack).toInt());
  const at::Tensor values = jit::pop(stack).toTensor();
  run.keep_failure_of([&] { jit::push(stack, run.hooks->draw(draw, values)); });
}

void run_gradients_of_code(jit::Stack& stack) {
  run_of_thread->keep_failure_of([&] { give_gradients(stack); });
}

void run_backward_of_code(jit::Stack& stack) {
  run_of_thread->keep_failure_of([&] { accumulate_gradients(stack); });
}

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}

}  // namespace

void run_attention(jit::Stack& stack) {
  check_internal(run_of_thread, kScriptAttention, ": expected a forward around it");
  Run& run = *run_of_thread;
  ScriptAttention a;
  a.grouped_queries = jit::pop(stack).toBool();
  const c10::IValue scale = jit::pop(stack);
  if (!scale.isNone()) a.scale = scale.toDouble();
  a.causal = jit::pop(stack).toBool();
  a.dropout = jit::pop(stack).toDouble();
  a.mask = tensor_or_none(jit::pop(stack));
  a.v = jit::pop(stack).toTensor();
  a.k = jit::pop(stack).toTensor();
  a.q = jit::pop(stack).toTensor();
  run.keep_failure_of([&] { jit::push(stack, run.hooks->attend(a)); });
}

namespace {

c10::Symbol call_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::call_submodule", "(int callee, int n_outputs, Tensor?[] inputs) -> Tensor[]",
      &call_submodule);
  return symbol;
}

c10::Symbol drop_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::drop",
      "(Tensor input, float p, bool train, bool in_place, bool of_channels, int mode) -> Tensor",
      &run_dropout);
  return symbol;
}

c10::Symbol attention_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::attend", kScriptAttentionSignature, &run_attention);
  return symbol;
}

c10::Symbol draw_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::draw", "(Tensor(a!) values, int kind, float first, float second) -> Tensor(a!)",
      &run_draw);
  return symbol;
}

constexpr const char* kRecurrenceOptions =
    " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first, int mode, int cell) -> (Tensor, Tensor";

c10::Symbol lstm_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::lstm",
      ("(Tensor input, Tensor[]" + std::string(kRecurrenceOptions) + ", Tensor)").c_str(),
      &run_recurrent_layers);
  return symbol;
}

c10::Symbol recurrence_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::recurrence", ("(Tensor input, Tensor" + std::string(kRecurrenceOptions) + ")").c_str(),
      &run_recurrent_layers);
  return symbol;
}

// Operators that draw, by the array that they write to.
enum class DrawnArray {
  kGiven,      // the first input
  kLikeInput,  // one like it
  kLike,       // one like it, in a dtype and an order in memory that the next inputs say
  kOfSizes,    // of sizes and a dtype
};
struct DrawForm {
  const char* name;
  const char* overload;
  ScriptDraw::Kind kind;
  DrawnArray array;
  size_t place = 0;    // of the sizes, or of the input that the array is or is like
  size_t options = 1;  // place of the dtype
  size_t first_parameter = 0, parameters = 0;  // without any they are the kind's own
};
constexpr DrawForm kDrawForms[] = {
    {"aten::rand", "", ScriptDraw::Kind::kUniform, DrawnArray::kOfSizes},
    {"aten::randn", "", ScriptDraw::Kind::kNormal, DrawnArray::kOfSizes},
    {"aten::normal", "float_float", ScriptDraw::Kind::kNormal, DrawnArray::kOfSizes, 2, 4, 0, 2},
    {"aten::rand_like", "", ScriptDraw::Kind::kUniform, DrawnArray::kLike},
    {"aten::randn_like", "", ScriptDraw::Kind::kNormal, DrawnArray::kLike},
    {"aten::bernoulli", "p", ScriptDraw::Kind::kBernoulli, DrawnArray::kLikeInput, 0, 1, 1, 1},
    {"aten::bernoulli", "", ScriptDraw::Kind::kUniform, DrawnArray::kLikeInput},
    {"aten::bernoulli_", "float", ScriptDraw::Kind::kBernoulli, DrawnArray::kGiven, 0, 1, 1, 1},
    {"aten::uniform_", "", ScriptDraw::Kind::kUniform, DrawnArray::kGiven, 0, 1, 1, 2},
    {"aten::normal_", "", ScriptDraw::Kind::kNormal, DrawnArray::kGiven, 0, 1, 1, 2},
    {"aten::exponential_", "", ScriptDraw::Kind::kExponential, DrawnArray::kGiven, 0, 1, 1, 1},
};

// Options of an array, to which the inputs end with the pinned memory, or, for an array like
// another, with the order in memory.
constexpr size_t kArrayOptions = 4;

// The array that a node writes its numbers to, made in front of it if it is none of its inputs.
jit::Value* drawn_array(jit::Graph& graph, jit::Node& node, const DrawForm& form) {
  if (form.array == DrawnArray::kGiven) return node.input(form.place);
  const bool of_sizes = form.array == DrawnArray::kOfSizes;
  const size_t given =
      form.array == DrawnArray::kLikeInput ? 0 : kArrayOptions + (of_sizes ? 0 : 1);
  std::vector<jit::Value*> inputs{node.input(form.place)};
  for (size_t i = 0; i <= kArrayOptions; ++i) {
    inputs.push_back(i < given ? node.input(form.options + i)
                               : graph.insertConstant(c10::IValue()));
  }
  const c10::Symbol kind = of_sizes ? c10::aten::empty : c10::aten::empty_like;
  return graph.insertNode(graph.create(kind, inputs))->output();
}

jit::Value* inserted_draw(jit::Graph& graph, jit::Value* array, ScriptDraw::Kind kind,
                          jit::Value* first, jit::Value* second) {
  jit::Value* const number = graph.insertConstant(static_cast<int64_t>(kind));
  return graph.insertNode(graph.create(draw_operator(), {array, number, first, second}))->output();
}

// Names of the attributes that lead from the graph's module to a value.
std::optional<Path> path_of(jit::Graph& graph, const jit::Value* value) {
  Path path;
  for (; value != graph.inputs()[0]; value = value->node()->input()) {
    if (value->node()->kind() != c10::prim::GetAttr) return std::nullopt;
    path.push_back(value->node()->s(c10::attr::name));
  }
  std::reverse(path.begin(), path.end());
  return path;
}

constexpr const char* kForwardNames[] = {"forward", "forward__0"};

bool is_forward(const jit::Node& call) {
  const std::string& name = call.s(c10::attr::name);
  return std::find(std::begin(kForwardNames), std::end(kForwardNames), name) !=
         std::end(kForwardNames);
}

// A recurrence whose layers drop nothing between them, in either mode.
bool drops_nothing(const jit::Node& node) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (!schema || !node.kind().is_aten()) return false;
  const auto place = schema->argumentIndexWithName("dropout");
  const auto dropout =
      place ? jit::toIValue(node.input(static_cast<size_t>(*place))) : c10::nullopt;
  return dropout && dropout->isDouble() && dropout->toDouble() == 0;
}

// The input of a node that its result is a part, or a view, of; null: of none.
const jit::Value* whole_of(const jit::Value* value) {
  const jit::Node* const node = value->node();
  if (node->kind() == c10::aten::__getitem__) return node->input(0);
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (!schema || value->offset() >= schema->returns().size()) return nullptr;
  const c10::AliasInfo* const result = schema->returns()[value->offset()].alias_info();
  const size_t count = std::min(node->inputs().size(), schema->arguments().size());
  for (size_t i = 0; result && i < count; ++i) {
    const c10::AliasInfo* const given = schema->arguments()[i].alias_info();
    if (given && given->beforeSets() == result->beforeSets()) return node->input(i);
  }
  return nullptr;
}

// True of what an attribute holds, of what that holds, and of views, where it is neither a
// parameter nor a buffer.
bool is_of_attribute(const jit::Value* value) {
  while (value && value->node()->kind() != c10::prim::GetAttr) value = whole_of(value);
  if (!value) return false;
  const jit::Node& get = *value->node();
  const auto type = get.input()->type()->cast<c10::ClassType>();
  const auto slot = type ? type->findAttributeSlot(get.s(c10::attr::name)) : c10::nullopt;
  return !slot || (!type->is_parameter(*slot) && !type->is_buffer(*slot));
}

// Objects that the code makes live as long as a run, such as that of a with no_grad().
bool changes_attributes(jit::Graph& graph) {
  for (const jit::Node* node : nodes_of(graph, c10::prim::SetAttr)) {
    if (node->input(0)->node()->kind() != c10::prim::CreateObject) return true;
  }
  const std::vector<jit::Node*> nodes = nodes_of(graph);
  return std::any_of(nodes.begin(), nodes.end(), [](const jit::Node* node) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (writes_to_input(*node, i) && is_of_attribute(node->input(i))) return true;
    }
    return false;
  });
}

void make_gradients_dense(jit::Graph& graph) {
  for (const auto& [name, sparse] : {std::pair{"aten::embedding", size_t{4}},
                                     {"aten::embedding_bag", size_t{5}},
                                     {"aten::_embedding_bag", size_t{5}}}) {
    for (jit::Node* node : nodes_of(graph, c10::Symbol::fromQualString(name))) {
      const jit::WithInsertPoint at(node);
      node->replaceInput(sparse, graph.insertConstant(false));
    }
  }
}

}  // namespace

void TorchscriptForward::inline_methods() {
  bool found = true;
  while (std::exchange(found, false)) {
    for (jit::Node* call : nodes_of(*graph_, c10::prim::CallMethod)) {
      const std::string& name = call->s(c10::attr::name);
      const auto type = call->input(0)->type()->cast<c10::ClassType>();
      if (is_forward(*call) || !type || !path_of(*graph_, call->input(0))) continue;
      jit::GraphFunction* const method = jit::tryToGraphFunction(type->getMethod(name));
      if (!method) continue;
      jit::inlineCallTo(call, method, method->graph().get());
      found = true;
    }
  }
}

void TorchscriptForward::hand_out(jit::Node* call, Path path, size_t n_outputs) {
  const jit::WithInsertPoint at(call);
  jit::Graph& graph = *graph_;
  jit::Value* const callee = graph.insertConstant(static_cast<int64_t>(callees_.size()));
  jit::Value* const count = graph.insertConstant(static_cast<int64_t>(n_outputs));
  const auto element = c10::OptionalType::create(c10::TensorType::get());
  std::vector<jit::Value*> given;
  for (jit::Value* const input : call->inputs().slice(1)) {
    given.push_back(as_input(graph, input));
  }
  jit::Value* const inputs = graph.insertNode(graph.createList(element, given))->output();
  jit::Node* const made = graph.insertNode(graph.create(call_operator(), {callee, count, inputs}));
  made->output()->setType(c10::ListType::ofTensors());
  at::ArrayRef<jit::Value*> tensors =
      graph.insertNode(graph.createListUnpack(made->output(), n_outputs))->outputs();
  call->output()->replaceAllUsesWith(assembled(graph, call->output()->type(), tensors));
  call->destroy();
  callees_.push_back(std::move(path));
}

void TorchscriptForward::hand_out_calls() {
  inline_methods();
  for (jit::Node* call : nodes_of(*graph_, c10::prim::CallMethod)) {
    std::optional<Path> path = path_of(*graph_, call->input(0));
    const std::optional<size_t> n_outputs = tensors_in(call->output()->type());
    if (!path || path->empty() || n_outputs.value_or(0) == 0) continue;
    if (!is_forward(*call)) continue;
    const auto inputs = call->inputs().slice(1);
    if (std::all_of(inputs.begin(), inputs.end(), &goes_as_tensor))
      hand_out(call, *std::move(path), *n_outputs);
  }
}

// "training" ends the path of a module's mode. -1 where the value is none.
int64_t TorchscriptForward::mode_index(const jit::Value* value) {
  std::optional<Path> mode = path_of(*graph_, value);
  if (!mode || mode->empty() || mode->back() != "training") return -1;
  mode->pop_back();
  mode_paths_.push_back(*std::move(mode));
  return static_cast<int64_t>(mode_paths_.size()) - 1;
}

void TorchscriptForward::hand_out_dropouts() {
  for (const char* name : {"dropout", "dropout_", "feature_dropout", "feature_dropout_"}) {
    const auto kind = c10::Symbol::fromQualString(std::string("aten::") + name);
    for (jit::Node* node : nodes_of(*graph_, kind)) {
      const jit::WithInsertPoint at(node);
      const std::string_view word = name;
      std::vector<jit::Value*> inputs = node->inputs().vec();
      inputs.push_back(graph_->insertConstant(word.back() == '_'));
      inputs.push_back(graph_->insertConstant(word[0] == 'f'));
      inputs.push_back(graph_->insertConstant(mode_index(node->input(2))));
      jit::Node* const made = graph_->insertNode(graph_->create(drop_operator(), inputs));
      node->output()->replaceAllUsesWith(made->output());
      node->destroy();
    }
  }
}

// An older signature ends before the scale, or before the grouped queries.
void TorchscriptForward::hand_out_attentions() {
  for (jit::Node* node : nodes_of(*graph_, c10::Symbol::fromQualString(kScriptAttention))) {
    const jit::WithInsertPoint at(node);
    std::vector<jit::Value*> inputs = node->inputs().vec();
    if (inputs.size() < 7) inputs.push_back(graph_->insertConstant(c10::IValue()));
    if (inputs.size() < 8) inputs.push_back(graph_->insertConstant(false));
    jit::Node* const made = graph_->insertNode(graph_->create(attention_operator(), inputs));
    node->output()->replaceAllUsesWith(made->output());
    node->destroy();
  }
}

// Recurrent layers that may drop something between them. Packed sequences are the interpreter's.
void TorchscriptForward::hand_out_recurrences() {
  using Cell = ScriptRecurrence::Cell;
  for (const auto& [name, cell] : {std::pair{"aten::lstm", Cell::kLstm},
                                   {"aten::gru", Cell::kGru},
                                   {"aten::rnn_tanh", Cell::kTanh},
                                   {"aten::rnn_relu", Cell::kRelu}}) {
    for (jit::Node* node : nodes_of(*graph_, c10::Symbol::fromQualString(name))) {
      const c10::FunctionSchema* schema = node->maybeSchema();
      if (!schema || schema->overload_name() != "input") continue;
      if (drops_nothing(*node)) continue;
      const jit::WithInsertPoint at(node);
      std::vector<jit::Value*> inputs = node->inputs().vec();
      inputs.push_back(graph_->insertConstant(mode_index(node->input(6))));
      inputs.push_back(graph_->insertConstant(static_cast<int64_t>(cell)));
      const c10::Symbol kind = cell == Cell::kLstm ? lstm_operator() : recurrence_operator();
      jit::Node* const made =
          graph_->insertNode(graph_->create(kind, inputs, node->outputs().size()));
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        node->outputs()[i]->replaceAllUsesWith(made->outputs()[i]);
      }
      node->destroy();
    }
  }
}

void TorchscriptForward::hand_out_draws() {
  const auto parameter = [this](jit::Node& node, const DrawForm& form, size_t i, double own) {
    return i < form.parameters ? node.input(form.first_parameter + i) : graph_->insertConstant(own);
  };
  for (const DrawForm& form : kDrawForms) {
    for (jit::Node* node : nodes_of(*graph_, c10::Symbol::fromQualString(form.name))) {
      const c10::FunctionSchema* schema = node->maybeSchema();
      if (!schema || schema->overload_name() != form.overload) continue;
      const jit::WithInsertPoint at(node);
      jit::Value* const array = drawn_array(*graph_, *node, form);
      jit::Value* drawn =
          inserted_draw(*graph_, array, form.kind, parameter(*node, form, 0, ScriptDraw{}.first),
                        parameter(*node, form, 1, ScriptDraw{}.second));
      // Probabilities of their own for each element.
      if (form.kind == ScriptDraw::Kind::kUniform && form.array == DrawnArray::kLikeInput) {
        drawn = graph_->insert(c10::aten::lt, {drawn, node->input(0)});
        drawn = graph_->insert(c10::aten::type_as, {drawn, node->input(0)});
      }
      node->output()->replaceAllUsesWith(drawn);
      node->destroy();
    }
  }
}

// Integers of [low, high): what uniform numbers of F64 are rounded down to.
void TorchscriptForward::hand_out_integer_draws() {
  for (jit::Node* node : nodes_of(*graph_, c10::aten::randint)) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    const bool has_low = schema && schema->overload_name() == "low";
    if (!schema || (!has_low && !schema->overload_name().empty())) continue;
    const jit::WithInsertPoint at(node);
    const size_t sizes = has_low ? 2 : 1;
    const auto constant = [&](const c10::IValue& value) { return graph_->insertConstant(value); };
    std::vector<jit::Value*> options{node->input(sizes), constant(at::kDouble)};
    for (size_t i = 2; i <= kArrayOptions; ++i) options.push_back(node->input(sizes + i));
    options.push_back(constant(c10::IValue()));
    jit::Value* const array =
        graph_->insertNode(graph_->create(c10::aten::empty, options))->output();
    const auto number = [&](jit::Value* of) { return graph_->insert(c10::aten::Float, {of}); };
    jit::Value* const low = has_low ? number(node->input(0)) : constant(0.0);
    jit::Value* const high = number(node->input(has_low ? 1 : 0));
    jit::Value* drawn = inserted_draw(*graph_, array, ScriptDraw::Kind::kUniform, low, high);
    drawn = graph_->insert(c10::aten::floor, {drawn});
    const bool has_dtype = !node->input(sizes + 1)->mustBeNone();
    jit::Value* const dtype = has_dtype ? node->input(sizes + 1) : constant(at::kLong);
    drawn = graph_->insert(c10::aten::to, {drawn, dtype});
    node->output()->replaceAllUsesWith(drawn);
    node->destroy();
  }
}

void TorchscriptForward::find_modes() {
  for (jit::Node* node : nodes_of(*graph_, c10::prim::GetAttr)) {
    if (node->s(c10::attr::name) != "training") continue;
    for (const jit::Use& use : node->output()->uses()) {
      const c10::Symbol kind = use.user->kind();
      const bool asks_each_run =
          kind == drop_operator() || kind == lstm_operator() || kind == recurrence_operator();
      if (asks_each_run || drops_nothing(*use.user)) continue;
      branch_paths_.push_back(path_of(*graph_, node->input()).value_or(Path()));
      break;
    }
  }
}

std::string forward_name(const jit::Module& script) {
  for (const char* name : kForwardNames) {
    if (script.find_method(name)) return name;
  }
  return "";
}

TorchscriptForward::TorchscriptForward(const jit::Module& script) {
  const jit::Method forward = script.get_method(forward_name(script));
  const auto written = jit::toGraphFunction(forward.function()).graph();
  graph_ = written->copy();
  hand_out_calls();
  jit::Inline(*graph_);
  if (changes_attributes(*graph_)) {
    callees_.clear();
    graph_ = written->copy();
    jit::Inline(*graph_);
  }
  hand_out_dropouts();
  hand_out_recurrences();
  hand_out_attentions();
  hand_out_draws();
  hand_out_integer_draws();
  for (jit::Graph* graph : graphs_with_forks(*graph_)) {
    ask_for_devices(*graph);
    make_host_tensors(*graph);
    check_reads_as_lists(*graph);
    make_gradients_dense(*graph);
    compute_gradients_here(*graph, &run_gradients_of_code, &run_backward_of_code);
  }
  find_modes();
  code_ = jit::Code(graph_, "forward");
}

c10::IValue TorchscriptForward::run(std::vector<c10::IValue> arguments, const Hooks& hooks,
                                    at::Device device, std::optional<at::Device> values) {
  Run run{&hooks, nullptr};
  const RunScope scope(run);
  const ScriptDeviceScope placing(device, values, constants_);
  std::optional<OnViewsScope> on_views;
  if (device.type() == kRecordedDeviceType) on_views.emplace();
  try {
    jit::InterpreterState(code_, &run_at_once).run(arguments);
  } catch (...) {
    if (run.failure) std::rethrow_exception(run.failure);
    throw;
  }
  return jit::pop(arguments);
}

}  // namespace nxd
