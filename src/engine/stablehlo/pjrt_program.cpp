#include "engine/stablehlo/pjrt_program.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "engine/device/device_copy.h"
#include "engine/device/device_metrics.h"
#include "engine/device/node_replay.h"
#include "engine/device/replay_plan.h"
#include "engine/device/replay_scope.h"
#include "engine/dtype.h"
#include "engine/stablehlo/client_lease.h"
#include "engine/stablehlo/host_checks.h"
#include "engine/stablehlo/kept_programs.h"
#include "engine/stablehlo/replica_rendezvous.h"
#include "engine/stablehlo/stablehlo_module.h"

namespace nxd {
namespace {

at::Tensor over_memory(void* data, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::from_blob(data, sizes, at::TensorOptions().dtype(dtype));
}

// The graphs that a running program's calls of the host are of, one for each replica.
struct HostCalls {
  std::vector<const RecordedGraph*> graphs{};
  const ReplayScope* const scope = ReplayScope::innermost();  // of the thread that runs the program
  // The first of a call. Replicas go on, as the others wait for them in a collective without end.
  std::optional<Error> error{};
  std::mutex mutex{};

  void keep(const Error& failure) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!error) error = failure;
  }
};

std::vector<at::Tensor> inputs_of_call(const CustomCall& call, const RecordedNode& node) {
  std::vector<at::Tensor> inputs;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const CustomCallBuffer& given = call.inputs().at(k);
    at::Tensor input = over_memory(given.data, given.shape, to_scalar_type(given.dtype));
    const RecordedNode& from = *node.inputs[k].node;
    // The device may have had another dtype in its place.
    const auto result = static_cast<size_t>(node.inputs[k].index);
    input = input.to(from.is_leaf() ? from.leaf.scalar_type()
                                    : from.call->results[result].scalar_type());
    if (from.is_leaf() && is_wrapped_number(from.leaf)) {
      input.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    inputs.push_back(std::move(input));
  }
  // The plug-in's buffers may be tensors of the program, or be read once more.
  for (const int written : node.call->overwrites) {
    if (written < 0) continue;
    inputs[static_cast<size_t>(written)] = inputs[static_cast<size_t>(written)].clone();
  }
  return inputs;
}

// A node that the program leaves to the host, on a thread of the plug-in's.
void run_host_node(const CustomCall& call) {
  auto& calls = *static_cast<HostCalls*>(call.rank_data());
  const ReplayScope::Call scope(calls.scope);
  const bool is_replica = calls.graphs.size() > 1;
  const auto replica =
      is_replica ? static_cast<size_t>(*static_cast<int64_t*>(call.inputs().back().data)) : 0;
  const RecordedGraph& graph = *calls.graphs.at(replica);
  const auto index = static_cast<size_t>(call.integer("node"));
  const RecordedNode& node = *graph.nodes.at(index);
  if (!node.call->op->is_effect) device_metrics::count_host_call(node.call->op->name);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  try {
    std::vector<at::Tensor> results;
    if (is_replica && node.check) {  // the peers are told by the error of all
      (*node.check)(inputs_of_call(call, node)[0]);
    } else {
      results = replay_node(node, index, inputs_of_call(call, node));
    }
    size_t next = 0;
    for (size_t r = 0; r < results.size(); ++r) {
      if (!node.call->results[r].defined()) continue;
      const CustomCallBuffer& out = call.outputs().at(next++);
      over_memory(out.data, out.shape, to_scalar_type(out.dtype)).copy_(results[r]);
    }
  } catch (...) {
    if (!is_replica) throw Error::current();
    calls.keep(Error::current());
  }
}

PjrtType pjrt_type(const at::Tensor& tensor) {
  return {to_nxd_dtype(tensor.scalar_type()), tensor.sizes().vec()};
}

// True of a plug-in whose memory is the host's. Programs that are written for Neuron's device take
// the CPU for one.
bool shares_memory(const PjrtClient& client) {
  return client.platform() == "cpu" && !client.target().is_neuron();
}

// A value that stays on the device until the host wants it.
class BufferOnDevice final : public DeviceCopy {
 public:
  BufferOnDevice(const PjrtClient& client, size_t device, PjrtBuffer&& buffer, at::ScalarType dtype)
      : client_(client), device_(device), buffer_(std::move(buffer)), dtype_(dtype) {}

  void copy_to(at::Tensor& host) const override {
    device_metrics::count_copied(buffer_.type().bytes());
    if (host.scalar_type() == dtype_) return buffer_.copy_to_host(host.data_ptr(), host.nbytes());
    const at::Tensor there = at::empty(host.sizes(), dtype_);
    buffer_.copy_to_host(there.data_ptr(), there.nbytes());
    host.copy_(there);
  }

  bool is_on(const PjrtClient& client, size_t device) const {
    return &client == &client_ && device == device_;
  }
  PjrtBuffer& buffer() { return buffer_; }

 private:
  const PjrtClient& client_;  // lives to the process's end
  const size_t device_;
  PjrtBuffer buffer_;
  const at::ScalarType dtype_;
};

// Null where it has none, or one on another device.
std::shared_ptr<BufferOnDevice> buffer_on(const PjrtClient& client, const at::Tensor& leaf,
                                          size_t device) {
  auto buffer = std::dynamic_pointer_cast<BufferOnDevice>(device_copy_of(leaf));
  return buffer && buffer->is_on(client, device) ? buffer : nullptr;
}

PjrtBuffer imported(PjrtClient& client, const at::Tensor& leaf, bool is_overwritten,
                    size_t device) {
  const at::Tensor there = leaf.to(dtype_on_device(client.target(), leaf.scalar_type()));
  void* data = there.data_ptr();
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % kPjrtAlignment == 0;
  const bool is_own = there.is_same(leaf);
  const bool is_shared = shares_memory(client) && is_own && is_aligned && leaf.numel() != 0;
  const HostMemory as_it_lies = is_overwritten ? HostMemory::kDonatable : HostMemory::kShared;
  if (!is_shared) device_metrics::count_copied(there.nbytes());
  return client.import_host(data, pjrt_type(there), is_shared ? as_it_lies : HostMemory::kCopied,
                            std::make_shared<at::Tensor>(there), device);
}

// The leaf as the program takes it. On a device of its own it stays there for the next program.
std::shared_ptr<PjrtBuffer> argument(PjrtClient& client, const at::Tensor& leaf,
                                     bool is_overwritten, size_t device) {
  if (shares_memory(client)) {
    return std::make_shared<PjrtBuffer>(imported(client, leaf, is_overwritten, device));
  }
  auto there = buffer_on(client, leaf, device);
  if (!there) {
    read_from_device(leaf);
    there = std::make_shared<BufferOnDevice>(client, device,
                                             imported(client, leaf, is_overwritten, device),
                                             dtype_on_device(client.target(), leaf.scalar_type()));
    if (may_have_device_copy(leaf)) set_device_copy(leaf, there, false);
  }
  return {there, &there->buffer()};
}

// The buffer's memory as a tensor, which keeps the buffer.
at::Tensor taken(const PjrtClient& client, size_t device, PjrtBuffer&& buffer,
                 const at::Tensor& declared) {
  const at::ScalarType there = dtype_on_device(client.target(), declared.scalar_type());
  if (declared.numel() == 0) return at::empty(declared.sizes(), declared.scalar_type());
  if (!shares_memory(client)) {
    const at::Tensor result = at::empty(declared.sizes(), declared.scalar_type());
    set_device_copy(
        result, std::make_shared<BufferOnDevice>(client, device, std::move(buffer), there), true);
    return result;
  }
  const auto kept = std::make_shared<PjrtBuffer>(std::move(buffer));
  const at::Tensor result = at::from_blob(
      kept->data(), declared.sizes(), [kept](void*) {}, at::TensorOptions().dtype(there));
  return result.to(declared.scalar_type());
}

// Once for each operator or function of the process. Effects are calls of the host in any case.
void name_host_calls(const RecordedGraph& outline, const std::vector<int>& host_nodes) {
  static auto* named = new std::set<std::string>;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const int index : host_nodes) {
    const RecordedOperator& op = *outline.nodes[static_cast<size_t>(index)]->call->op;
    if (op.is_effect || !named->insert(op.name).second) continue;
    log(NXD_LOG_WARN, "device xla: ", op.name,
        " has no lowering to StableHLO: compiled graphs call the CPU for it");
  }
}

// A rank's program runs the graphs of others whose digest is the same: that of the text, and of the
// places in a graph of what the program takes and gives. A node that becomes no operation, such as
// a view to the sizes that there are, moves these and leaves the text.
uint64_t digest_of(const StableHloModule& module, const RecordedGraph& outline) {
  Hash hash;
  hash.add(module.text);
  const auto add = [&hash](int place) { hash.add(static_cast<uint64_t>(place + 1)); };
  for (const int slot : module.buffers) add(slot);
  for (const auto* numbers : {&module.floats, &module.integers}) {
    for (const HloScalars::Source& source : *numbers) {
      for (const int place : {source.leaf, source.node, source.argument}) add(place);
    }
  }
  for (const int slot : outline.kept_slots) add(slot);
  return hash.value();
}

// A module and its executables, one for each client that it has run on. The process may let go of
// them while the module is kept.
class PjrtModule {
 public:
  PjrtModule(const RecordedGraph& outline, const ModuleReplicas& replicas)
      : outline_(outline), replicas_(replicas), module_(emitted()) {
    digest_ = digest_of(module_, outline);
    name_host_calls(outline, module_.host_nodes);
  }
  ~PjrtModule() {
    for (const PjrtClient* const client : clients_) KeptPrograms::remove(this, *client);
  }
  PjrtModule(const PjrtModule&) = delete;
  PjrtModule& operator=(const PjrtModule&) = delete;

  // Compiled if the client is new to it, or its executable has left.
  std::shared_ptr<PjrtExecutable> executable_on(PjrtClient& client) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (auto kept = KeptPrograms::find(this, client)) return kept;
    const auto start = std::chrono::steady_clock::now();
    PjrtOptions options;
    options.fast_compile = env::pjrt_fast_compile();
    options.replicas = std::max(1, static_cast<int>(replicas_.ranks.size()));
    // The text is large, and seldom wanted again.
    if (module_.text.empty()) module_.text = emitted().text;
    auto executable = client.compile(std::exchange(module_.text, {}), options);
    KeptPrograms::add(this, client, executable);
    if (!clients_.insert(&client).second) {
      device_metrics::count_compile(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          executable->was_loaded());
    }
    return executable;
  }
  const StableHloModule& parts() const { return module_; }
  uint64_t digest() const { return digest_; }

 private:
  StableHloModule emitted() const {
    return emit_stablehlo(outline_, replicas_, pjrt_client().target());
  }

  const RecordedGraph outline_;
  const ModuleReplicas replicas_;
  StableHloModule module_;  // without its text once it is compiled
  uint64_t digest_ = 0;
  std::mutex mutex_;
  std::set<const PjrtClient*> clients_;  // that it was compiled for
};

class PjrtProgram final : public GraphProgram {
  using Buffers = std::vector<std::shared_ptr<PjrtBuffer>>;

 public:
  explicit PjrtProgram(const RecordedGraph& outline)
      : outline_(outline), rendezvous_(rendezvous_of(outline)), host_checks_(outline) {
    static const bool is_registered = [] {
      register_custom_call(kHostNodeFunction, &run_host_node);
      return true;
    }();
    check_internal(is_registered, "custom calls are not registered");
    for (const at::Tensor& leaf : outline.leaves) slots_.push_back(leaf);
    for (const int slot : outline.kept_slots) {
      leaf_of_result_.push_back(outline.overwritten_leaf(slot));
      if (leaf_of_result_.back() >= 0) overwritten_leaves_.insert(leaf_of_result_.back());
    }
    for (const auto& node : outline.nodes) {
      slots_.insert(slots_.end(), node->call->results.begin(), node->call->results.end());
    }
    module_ = std::make_unique<PjrtModule>(outline, replicas_of(outline));
    PjrtClient& client = is_of_replicas() ? client_of_replicas(rendezvous_.ranks) : pjrt_client();
    was_loaded_ = module_->executable_on(client)->was_loaded();
  }

  bool was_loaded() const override { return was_loaded_; }

  std::vector<at::Tensor> run(const RecordedGraph& graph, bool* has_overwritten) const override {
    bool has_begun = false;
    bool& begins = overwritten_leaves_.empty() ? has_begun : *has_overwritten;
    if (rendezvous_.node >= 0) {
      if (auto results = run_with_others(graph, &begins)) return std::move(*results);
    }
    // The peers of a plug-in that cannot call the host are in the device, where no call of ours
    // reaches them.
    if (!is_of_replicas()) host_checks_.make(graph, pjrt_client().has_custom_calls());
    begins = true;
    return run_alone(is_of_replicas() ? module_of_one_rank() : *module_, graph);
  }

 private:
  bool is_of_replicas() const { return rendezvous_.node >= 0 && rendezvous_.as_replicas; }

  // As run_as_replica.
  std::optional<std::vector<at::Tensor>> run_with_others(const RecordedGraph& graph,
                                                         bool* has_begun) const {
    const auto node = static_cast<size_t>(rendezvous_.node);
    ProcessGroup& group = *graph.nodes[node]->call->exchanges[rendezvous_.exchange].group;
    if (is_of_replicas()) {
      try {
        host_checks_.make(graph, false);
      } catch (...) {
        const Error error = Error::current();
        reject_run(group, error);
        throw error;
      }
    }
    const auto run = [this](const Graphs& graphs) {
      return run_together(*module_, client_of_replicas(rendezvous_.ranks), graphs);
    };
    return run_as_replica(group, is_of_replicas() ? module_->digest() : 0, graph, run, has_begun);
  }

  std::vector<at::Tensor> run_alone(PjrtModule& module, const RecordedGraph& graph) const {
    const ClientLease lease;
    return run_together(module, lease.client(), {&graph}).at(0);
  }

  // For ranks that meet and have different graphs.
  PjrtModule& module_of_one_rank() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!module_of_one_rank_) {
      module_of_one_rank_ = std::make_unique<PjrtModule>(outline_, ModuleReplicas());
    }
    return *module_of_one_rank_;
  }

  // The results of each graph, all of which are of this program's hash.
  std::vector<std::vector<at::Tensor>> run_together(PjrtModule& module, PjrtClient& client,
                                                    const Graphs& graphs) const {
    const std::shared_ptr<PjrtExecutable> executable = module.executable_on(client);
    std::vector<Buffers> inputs(graphs.size());
    std::vector<std::vector<PjrtBuffer*>> arguments(graphs.size());
    for (size_t i = 0; i < graphs.size(); ++i) {
      inputs[i] = inputs_of(module.parts(), client, *graphs[i], i);
      for (const auto& input : inputs[i]) arguments[i].push_back(input.get());
    }
    HostCalls calls;
    calls.graphs = graphs;
    std::shared_ptr<PjrtExecution> execution;
    try {
      execution = executable->execute_on_devices(arguments, &calls);
      execution->wait();
      if (calls.error) throw *calls.error;
    } catch (...) {
      for (size_t i = 0; i < graphs.size(); ++i) lose_overwritten(client, *graphs[i], i);
      throw;
    }
    std::vector<std::vector<at::Tensor>> results(graphs.size());
    for (size_t i = 0; i < graphs.size(); ++i) {
      for (size_t k = 0; k < graphs[i]->kept_slots.size(); ++k) {
        results[i].push_back(
            result_of(client, i, *graphs[i], k, std::move(execution->outputs(i).at(k))));
      }
    }
    return results;
  }

  Buffers inputs_of(const StableHloModule& module, PjrtClient& client, const RecordedGraph& graph,
                    size_t device) const {
    Buffers inputs;
    for (const int slot : module.buffers) {
      const bool is_overwritten = overwritten_leaves_.count(slot) != 0;
      inputs.push_back(
          argument(client, graph.leaves[static_cast<size_t>(slot)], is_overwritten, device));
    }
    add_numbers(client, numbers<double>(graph, module.floats), device, inputs);
    add_numbers(client, numbers<int64_t>(graph, module.integers), device, inputs);
    return inputs;
  }

  // In the memory of the leaf that it overwrites, or that leaf's copy on the device, where there is
  // one.
  at::Tensor result_of(const PjrtClient& client, size_t device, const RecordedGraph& graph,
                       size_t index, PjrtBuffer&& buffer) const {
    const at::Tensor& declared = slots_[static_cast<size_t>(graph.kept_slots[index])];
    if (leaf_of_result_[index] < 0) return taken(client, device, std::move(buffer), declared);
    at::Tensor leaf = graph.leaves[static_cast<size_t>(leaf_of_result_[index])];
    if (shares_memory(client)) {
      if (buffer.data() == leaf.data_ptr()) return leaf;
      device_metrics::count_copied(leaf.nbytes());
      return leaf.copy_(taken(client, device, std::move(buffer), declared));
    }
    const auto there = std::make_shared<BufferOnDevice>(
        client, device, std::move(buffer), dtype_on_device(client.target(), leaf.scalar_type()));
    if (may_have_device_copy(leaf)) {
      set_device_copy(leaf, there, true);
    } else {
      there->copy_to(leaf);
    }
    return leaf;
  }

  // After a program has failed that may have taken the memory of leaves on the device.
  void lose_overwritten(const PjrtClient& client, const RecordedGraph& graph, size_t device) const {
    for (const int slot : overwritten_leaves_) {
      const at::Tensor& leaf = graph.leaves[static_cast<size_t>(slot)];
      const auto there = buffer_on(client, leaf, device);
      if (there && there->buffer().is_donated()) lose_device_copy(leaf);
    }
  }

  template <class Number>
  static std::vector<Number> numbers(const RecordedGraph& graph,
                                     const std::vector<HloScalars::Source>& sources) {
    std::vector<Number> out;
    for (const HloScalars::Source& source : sources) {
      if (source.leaf >= 0) read_from_device(graph.leaves[static_cast<size_t>(source.leaf)]);
      const at::Scalar value = source.leaf >= 0
                                   ? graph.leaves[static_cast<size_t>(source.leaf)].item()
                                   : graph.nodes[static_cast<size_t>(source.node)]
                                         ->call->arguments[static_cast<size_t>(source.argument)]
                                         .toScalar();
      out.push_back(value.to<Number>());
    }
    return out;
  }

  template <class Number>
  static void add_numbers(PjrtClient& client, const std::vector<Number>& values, size_t device,
                          Buffers& inputs) {
    if (values.empty()) return;
    const at::ScalarType dtype = c10::CppTypeToScalarType<Number>::value;
    const at::Tensor there = over_memory(const_cast<Number*>(values.data()),
                                         {static_cast<int64_t>(values.size())}, dtype)
                                 .to(dtype_on_device(client.target(), dtype));
    inputs.push_back(std::make_shared<PjrtBuffer>(client.import_host(
        there.data_ptr(), pjrt_type(there), HostMemory::kCopied, nullptr, device)));
  }

  const RecordedGraph outline_;
  const ReplicaRendezvous rendezvous_;
  const HostChecks host_checks_;
  std::unique_ptr<PjrtModule> module_;
  std::vector<at::Tensor> slots_;  // on the meta device
  std::set<int> overwritten_leaves_;
  std::vector<int> leaf_of_result_;  // which is overwritten, or -1
  bool was_loaded_ = false;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<PjrtModule> module_of_one_rank_;  // made when it is wanted
};

}  // namespace

PjrtClient& client_of_replicas(const std::vector<int>& ranks) {
  return *PjrtClient::load(pjrt_client().plugin().path(), static_cast<int>(ranks.size()));
}

std::string stablehlo_of(const RecordedGraph& outline) {
  if (!has_graph_compiler()) return emit_stablehlo(outline).text;
  return emit_stablehlo(outline, replicas_of(outline), pjrt_client().target()).text;
}

std::unique_ptr<GraphProgram> compile_by_pjrt(const RecordedGraph& outline) {
  return std::make_unique<PjrtProgram>(outline);
}

}  // namespace nxd
