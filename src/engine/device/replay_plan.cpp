#include "engine/device/replay_plan.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <variant>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/lru_map.h"
#include "engine/device/device_metrics.h"
#include "engine/device/node_replay.h"

namespace nxd {
namespace {

// Hashes of graphs whose plans have left.
constexpr size_t kMostHashes = 1 << 16;

std::vector<at::Tensor> run_node(const RecordedGraph& graph, size_t index,
                                 const std::vector<at::Tensor>& values, GraphRounding* rounding) {
  std::vector<at::Tensor> inputs;
  for (const int slot : graph.input_slots[index]) {
    inputs.push_back(values[static_cast<size_t>(slot)]);
  }
  return replay_node(*graph.nodes[index], index, inputs, rounding);
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || b.numel() == 0) return false;
  const auto begin = [](const at::Tensor& t) { return static_cast<const char*>(t.data_ptr()); };
  // Values are dense, or views whose elements are all within their storage.
  const auto end = [&](const at::Tensor& t) {
    return t.is_contiguous() ? begin(t) + t.nbytes()
                             : static_cast<const char*>(t.storage().data()) + t.storage().nbytes();
  };
  return begin(a) < end(b) && begin(b) < end(a);
}

// Before a node writes to a slot's memory: no other value that is needed still may lie there. A
// leaf's memory is written to itself, since a tensor of the program keeps its place.
// Gives true if it is one.
bool make_writable(const RecordedGraph& graph, int slot, const std::vector<int>& live_slots,
                   std::vector<at::Tensor>& values) {
  const auto at = static_cast<size_t>(slot);
  at::Tensor& target = values[at];
  const bool in_leaf = at < graph.leaves.size() || graph.overwritten_leaf(slot) >= 0;
  for (const int live : live_slots) {
    if (live == slot) continue;
    at::Tensor& other = values[static_cast<size_t>(live)];
    if (!overlap(other, target)) continue;
    if (in_leaf) {
      other = other.clone(at::MemoryFormat::Contiguous);
    } else {
      target = target.clone(at::MemoryFormat::Contiguous);
      return false;
    }
  }
  if (!target.is_contiguous()) target = target.contiguous();
  return in_leaf;
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
    const int leaf = graph.overwritten_leaf(slot);
    if (leaf >= 0 && value.data_ptr() == graph.leaves[static_cast<size_t>(leaf)].data_ptr()) {
      kept.push_back(graph.leaves[static_cast<size_t>(leaf)]);
      continue;
    }
    const bool is_whole = value.is_contiguous() && value.storage().nbytes() == value.nbytes();
    if (!is_whole || !taken.insert(value.storage().unsafeGetStorageImpl()).second) {
      value = value.clone(at::MemoryFormat::Contiguous);
    }
    kept.push_back(std::move(value));
  }
  return kept;
}

bool extracts_graphs_only() {
  static const bool extracts = env::get("NEURON_EXTRACT_GRAPHS_ONLY") == "1";
  return extracts;
}

// In place of the kept results: what is overwritten stays as it is, and all else is 0.
std::vector<at::Tensor> results_not_computed(const RecordedGraph& graph) {
  std::vector<at::Tensor> declared = graph.leaves;
  for (const auto& node : graph.nodes) {
    declared.insert(declared.end(), node->call->results.begin(), node->call->results.end());
  }
  std::vector<at::Tensor> kept;
  for (const int slot : graph.kept_slots) {
    const int leaf = graph.overwritten_leaf(slot);
    if (leaf >= 0) {
      kept.push_back(graph.leaves[static_cast<size_t>(leaf)]);
      continue;
    }
    const at::Tensor& like = declared[static_cast<size_t>(slot)];
    kept.push_back(at::zeros(like.sizes(), like.scalar_type()));
  }
  return kept;
}

struct PlanCache {
  using Plans = LruMap<GraphHash::Value, std::shared_ptr<const ReplayPlan>, HashOfGraphHash>;

  std::mutex mutex{};
  GraphCompiler compiler = nullptr;
  Plans plans{env::most_graphs()};
  LruMap<GraphHash::Value, std::monostate, HashOfGraphHash> have_left{kMostHashes};
};

PlanCache& plan_cache() {
  static auto* cache = new PlanCache;  // threads may execute while the process ends
  return *cache;
}

void warn_of_returned_graph(size_t most) {
  static std::atomic<bool> has_warned{false};
  if (has_warned.exchange(true)) return;
  log(NXD_LOG_WARN, "device xla: a graph is compiled again that had left for others: the process ",
      "keeps ", most, " graphs (XLA_COMPILATION_CACHE_SIZE)");
}

}  // namespace

ReplayPlan::ReplayPlan(const RecordedGraph& graph, GraphCompiler compiler)
    : last_uses_(graph.nodes.size()), live_slots_(graph.nodes.size()), outline_(graph.outline()) {
  if (compiler) {
    program_ = compiler(outline_);
    return;
  }
  constexpr size_t kNever = SIZE_MAX;
  const auto slots = static_cast<size_t>(graph.num_slots);
  std::vector<size_t> last_use(slots, kNever);
  std::vector<bool> is_kept(slots);
  for (const int slot : graph.kept_slots) is_kept[static_cast<size_t>(slot)] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const RecordedNode& node = *graph.nodes[i];
    // A result that nothing takes goes as soon as it is there.
    for (size_t r = 0; r < node.call->results.size(); ++r) {
      last_use[static_cast<size_t>(graph.first_slots[i]) + r] = i;
    }
    for (const int slot : graph.input_slots[i]) last_use[static_cast<size_t>(slot)] = i;
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    if (!is_kept[slot] && last_use[slot] != kNever) {
      last_uses_[last_use[slot]].push_back(static_cast<int>(slot));
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i]->call->overwrites.empty()) continue;
    for (size_t slot = 0; slot < static_cast<size_t>(graph.first_slots[i]); ++slot) {
      const bool is_live = is_kept[slot] || (last_use[slot] != kNever && last_use[slot] >= i);
      if (is_live) live_slots_[i].push_back(static_cast<int>(slot));
    }
  }
}

std::vector<at::Tensor> ReplayPlan::run(const RecordedGraph& graph, bool* has_overwritten,
                                        GraphRounding* rounding) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (extracts_graphs_only()) return results_not_computed(graph);
  if (program_) return program_->run(graph, has_overwritten);
  std::vector<at::Tensor> values(static_cast<size_t>(graph.num_slots));
  std::copy(graph.leaves.begin(), graph.leaves.end(), values.begin());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const int input : graph.nodes[i]->call->overwrites) {
      if (input < 0) continue;
      const int slot = graph.input_slots[i][static_cast<size_t>(input)];
      if (make_writable(graph, slot, live_slots_[i], values)) *has_overwritten = true;
    }
    std::vector<at::Tensor> results = run_node(graph, i, values, rounding);
    std::move(results.begin(), results.end(), values.begin() + graph.first_slots[i]);
    for (const int slot : last_uses_[i]) values[static_cast<size_t>(slot)].reset();
  }
  return owned_results(graph, values);
}

std::shared_ptr<const ReplayPlan> plan_for(const RecordedGraph& graph, bool* is_new) {
  const GraphHash::Value hash = graph.hash();
  PlanCache& cache = plan_cache();
  std::optional<PlanCache::Plans::Entry> leaves;  // without the lock: programs take time to end
  // Held while a plan is made: of ranks that are threads one makes it, and the others find it.
  const std::lock_guard<std::mutex> lock(cache.mutex);
  *is_new = false;
  if (const auto* const found = cache.plans.find(hash)) {
    device_metrics::count_cache_hit();
    return *found;
  }
  const auto start = std::chrono::steady_clock::now();
  auto plan = std::make_shared<const ReplayPlan>(graph, cache.compiler);
  leaves = cache.plans.add(hash, plan);
  if (leaves) {
    cache.have_left.add(leaves->first, {});
    device_metrics::count_eviction();
  }
  *is_new = !cache.have_left.take(hash);
  if (!*is_new) warn_of_returned_graph(cache.plans.most());
  device_metrics::count_compile(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      plan->was_loaded());
  return plan;
}

void set_graph_compiler(GraphCompiler compiler) {
  PlanCache& cache = plan_cache();
  const std::lock_guard<std::mutex> lock(cache.mutex);
  cache.compiler = compiler;
}

bool has_graph_compiler() {
  PlanCache& cache = plan_cache();
  const std::lock_guard<std::mutex> lock(cache.mutex);
  return cache.compiler != nullptr;
}

size_t plan_count() {
  PlanCache& cache = plan_cache();
  const std::lock_guard<std::mutex> lock(cache.mutex);
  return cache.plans.size();
}

}  // namespace nxd
