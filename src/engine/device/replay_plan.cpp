#include "engine/device/replay_plan.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <chrono>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "engine/device/device_metrics.h"

namespace nxd {
namespace {

// Plans of shapes that never come back would fill the memory: beyond this many all are forgotten,
// and those still in use are compiled again.
constexpr size_t kMostPlans = 4096;

void put_lists(const RecordedNode& node, const std::vector<int>& slots,
               const std::vector<at::Tensor>& values, torch::jit::Stack& stack) {
  for (size_t a = 0; a < node.lists.size(); ++a) {
    const ListArgument& list = node.lists[a];
    if (list.kind == ListArgument::Kind::kNone) continue;
    std::vector<at::Tensor> elements(list.size);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const NodeInput& input = node.inputs[k];
      if (input.argument != static_cast<int>(a)) continue;
      elements[static_cast<size_t>(input.element)] = values[static_cast<size_t>(slots[k])];
    }
    if (list.kind == ListArgument::Kind::kTensors) {
      stack[a] = c10::IValue(elements);
      continue;
    }
    c10::List<c10::optional<at::Tensor>> optional;
    for (const at::Tensor& element : elements) {
      optional.push_back(element.defined() ? c10::optional<at::Tensor>(element) : c10::nullopt);
    }
    stack[a] = c10::IValue(std::move(optional));
  }
}

std::vector<at::Tensor> run_operator_node(const RecordedNode& node, const std::vector<int>& slots,
                                          const std::vector<at::Tensor>& values) {
  torch::jit::Stack stack = node.arguments;
  put_lists(node, slots, values, stack);
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const NodeInput& input = node.inputs[k];
    if (input.element != NodeInput::kNoList) continue;
    const at::Tensor& value = values[static_cast<size_t>(slots[k])];
    stack[static_cast<size_t>(input.argument)] =
        node.op->needs_dense_inputs ? value.contiguous() : value;
  }
  node.op->replay->callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : stack) {
    if (result.isTensor()) {
      results.push_back(result.toTensor());
    } else {
      for (const at::Tensor& element : result.toTensorVector()) results.push_back(element);
    }
  }
  return results;
}

std::vector<at::Tensor> run_function_node(const RecordedNode& node, const std::vector<int>& slots,
                                          const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> inputs;
  for (const int slot : slots) inputs.push_back(values[static_cast<size_t>(slot)]);
  return node.function(inputs);
}

// The message says which call of the step failed: it is made long after it was recorded.
std::vector<at::Tensor> run_node(const RecordedGraph& graph, size_t index,
                                 const std::vector<at::Tensor>& values) {
  const RecordedNode& node = *graph.nodes[index];
  const std::vector<int>& slots = graph.input_slots[index];
  try {
    std::vector<at::Tensor> results = node.function ? run_function_node(node, slots, values)
                                                    : run_operator_node(node, slots, values);
    check_internal(results.size() == node.results.size(), node.op->name, " gave ", results.size(),
                   " results, and ", node.results.size(), " were recorded");
    return results;
  } catch (c10::Error& error) {
    error.add_context(text("in node ", index, " of a recorded graph: ", call_text(node)));
    throw;
  }
}

// The kept results. One that shares its memory with a leaf, or with another, gets its own: values
// may be written in place later. A view would also keep all of its base.
std::vector<at::Tensor> owned_results(const RecordedGraph& graph, std::vector<at::Tensor>& values) {
  std::unordered_set<const c10::StorageImpl*> taken;
  for (const at::Tensor& leaf : graph.leaves) {
    taken.insert(leaf.storage().unsafeGetStorageImpl());
  }
  std::vector<at::Tensor> kept;
  for (const int slot : graph.kept_slots) {
    at::Tensor value = values[static_cast<size_t>(slot)];
    const bool is_whole = value.is_contiguous() && value.storage().nbytes() == value.nbytes();
    if (!is_whole || !taken.insert(value.storage().unsafeGetStorageImpl()).second) {
      value = value.clone(at::MemoryFormat::Contiguous);
    }
    kept.push_back(std::move(value));
  }
  return kept;
}

struct PlanCache {
  std::mutex mutex;
  std::unordered_map<GraphHash::Value, std::shared_ptr<const ReplayPlan>, HashOfGraphHash> plans;
};

PlanCache& plan_cache() {
  static auto* cache = new PlanCache;  // threads may execute while the process ends
  return *cache;
}

}  // namespace

ReplayPlan::ReplayPlan(const RecordedGraph& graph)
    : last_uses_(graph.nodes.size()), outline_(graph.outline()) {
  constexpr size_t kNever = SIZE_MAX;
  const auto slots = static_cast<size_t>(graph.num_slots);
  std::vector<size_t> last_use(slots, kNever);
  std::vector<bool> is_kept(slots);
  for (const int slot : graph.kept_slots) is_kept[static_cast<size_t>(slot)] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const RecordedNode& node = *graph.nodes[i];
    // A result that nothing takes goes as soon as it is there.
    for (size_t r = 0; r < node.results.size(); ++r) {
      last_use[static_cast<size_t>(graph.first_slots[i]) + r] = i;
    }
    for (const int slot : graph.input_slots[i]) last_use[static_cast<size_t>(slot)] = i;
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    if (!is_kept[slot] && last_use[slot] != kNever) {
      last_uses_[last_use[slot]].push_back(static_cast<int>(slot));
    }
  }
}

std::vector<at::Tensor> ReplayPlan::run(const RecordedGraph& graph) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::vector<at::Tensor> values(static_cast<size_t>(graph.num_slots));
  std::copy(graph.leaves.begin(), graph.leaves.end(), values.begin());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    std::vector<at::Tensor> results = run_node(graph, i, values);
    std::move(results.begin(), results.end(), values.begin() + graph.first_slots[i]);
    for (const int slot : last_uses_[i]) values[static_cast<size_t>(slot)].reset();
  }
  return owned_results(graph, values);
}

std::shared_ptr<const ReplayPlan> plan_for(const RecordedGraph& graph, bool* is_new) {
  const GraphHash::Value hash = graph.hash();
  PlanCache& cache = plan_cache();
  // Held while a plan is made: of ranks that are threads one makes it, and the others find it.
  const std::lock_guard<std::mutex> lock(cache.mutex);
  const auto found = cache.plans.find(hash);
  *is_new = found == cache.plans.end();
  if (!*is_new) {
    device_metrics::count_cache_hit();
    return found->second;
  }
  const auto start = std::chrono::steady_clock::now();
  auto plan = std::make_shared<const ReplayPlan>(graph);
  if (cache.plans.size() >= kMostPlans) cache.plans.clear();
  cache.plans.emplace(hash, plan);
  device_metrics::count_compile(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return plan;
}

size_t plan_count() {
  PlanCache& cache = plan_cache();
  const std::lock_guard<std::mutex> lock(cache.mutex);
  return cache.plans.size();
}

}  // namespace nxd
