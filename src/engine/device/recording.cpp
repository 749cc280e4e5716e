// How a step runs. Three ops on a parameter p and an input x of one thread:
//   y = x * p        node 1, a pending value
//   l = sum(y)       node 2, a pending value
//   p = p - 0.1 * x  nodes 3 and 4; p's value becomes the result of node 4
// mark_step takes the values that tensors still hold (l, p; y too if autograd saved it), walks from
// them and from the effects to the leaves (x, the old p), and puts the nodes in the order of their
// calls. Their hash finds a plan or makes one. The plan runs them on the leaves' memory, and the
// results become the values. The next step meets the same graph with other leaves and scalars.
#include "engine/device/recording.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "engine/device/device_metrics.h"
#include "engine/device/graph_text.h"

namespace nxd {
namespace {

// The first step differs from the second, which finds the optimizer's state in place of zeros.
constexpr uint64_t kExpectedStepGraphs = 2;

thread_local std::shared_ptr<Recording> recording_of_thread;
thread_local bool is_replaying = false;

class ReplayScope {
 public:
  ReplayScope() : outer_(std::exchange(is_replaying, true)) {}
  ~ReplayScope() { is_replaying = outer_; }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  const bool outer_;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

DeviceValue::DeviceValue(std::shared_ptr<Recording> owner, at::Tensor shape)
    : recording(std::move(owner)), meta(std::move(shape)) {}

DeviceValue::~DeviceValue() { recording->forget(*this); }

void DeviceValue::set_previous(const DeviceValue& other) {
  previous = other.data.defined() ? other.data : other.previous;
}

const std::shared_ptr<Recording>& Recording::current() {
  if (!recording_of_thread) recording_of_thread = std::make_shared<Recording>();
  return recording_of_thread;
}

Recording* Recording::existing() noexcept { return recording_of_thread.get(); }

uint64_t Recording::next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void Recording::forget(const DeviceValue& value) {
  if (value.id == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.erase(value.id);
}

DeviceValuePtr Recording::known(at::Tensor data) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  auto value = std::make_shared<DeviceValue>(
      shared_from_this(),
      at::empty(data.sizes(), at::TensorOptions().dtype(data.scalar_type()).device(at::kMeta)));
  value->data = std::move(data);
  return value;
}

std::vector<DeviceValuePtr> Recording::add(const std::shared_ptr<RecordedNode>& node) {
  device_metrics::count_recorded();
  std::vector<DeviceValuePtr> values(node->results.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!node->results[i].defined()) continue;
    values[i] = std::make_shared<DeviceValue>(shared_from_this(), node->results[i]);
    values[i]->source = {node, static_cast<int>(i)};
    values[i]->id = next_id();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const DeviceValuePtr& value : values) {
      if (value) pending_.emplace(value->id, value.get());
    }
    if (node->op->is_effect) effects_.push_back(node);
  }
  cut_if_too_long();
  return values;
}

// A program that never ends a step would fill the memory, and no compiler takes such a graph.
void Recording::cut_if_too_long() {
  if (++recorded_ < most_nodes_ || is_replaying) return;
  if (!std::exchange(has_warned_of_length_, true)) {
    log(NXD_LOG_WARN, "device xla: ", most_nodes_, " operators were recorded without the end of a ",
        "step: they run as a graph of their own (NXD_MAX_GRAPH_NODES); call nxd_mark_step at the ",
        "end of each step");
  }
  sync("nxd::graph_limit");
}

NodeResult Recording::source_of(DeviceValue& value) {
  if (value.recording.get() != this) value_of(value, "a tensor of another thread");
  check_state(value.failure.empty(), value.failure);
  if (!value.source.node) {
    auto leaf = std::make_shared<RecordedNode>();
    leaf->leaf = value.data;
    value.source = {std::move(leaf), 0};
  }
  return value.source;
}

at::Tensor Recording::value_of(DeviceValue& value, const std::string& reason) {
  Recording& owner = *value.recording;
  bool waits = false;
  {
    // Another thread may be executing it.
    const std::lock_guard<std::mutex> running(owner.execution_mutex_);
    waits = !value.data.defined() && value.failure.empty();
  }
  if (waits) {
    device_metrics::count_implicit_sync(reason);
    owner.execute_pending();
  }
  check_state(value.failure.empty(), value.failure);
  check_internal(value.data.defined(), "a recorded value is missing after its graph has run");
  return value.data;
}

void Recording::replace(DeviceValue& value, at::Tensor data) {
  Recording& owner = *value.recording;
  const std::lock_guard<std::mutex> running(owner.execution_mutex_);
  owner.forget(value);
  value.id = 0;
  value.source = {};
  value.previous.reset();
  value.failure.clear();
  value.meta = at::empty(data.sizes(), data.options().device(at::kMeta));
  value.data = std::move(data);
}

void Recording::move_value(DeviceValue& from, DeviceValue& to) {
  check_internal(from.recording.get() == this && from.id != 0, "a value that is not recorded here");
  to.recording->forget(to);
  const std::lock_guard<std::mutex> lock(mutex_);
  to.recording = shared_from_this();
  to.source = std::exchange(from.source, {});
  to.previous = std::exchange(from.previous, {});
  to.data.reset();
  to.failure.clear();
  to.is_reordered = false;
  to.id = std::exchange(from.id, 0);
  from.failure = "a value that another tensor has taken";
  pending_[to.id] = &to;
}

Recording::Pending Recording::take_pending() {
  Pending out;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, value] : pending_) {
    // One that another thread is destroying waits for the mutex: it is not needed any more.
    if (DeviceValuePtr held = value->weak_from_this().lock()) out.values.push_back(std::move(held));
  }
  pending_.clear();
  out.effects.swap(effects_);
  return out;
}

// Values that nothing has overwritten are what they were before the graph.
void Recording::give_up(const Pending& pending, bool has_overwritten, const Error& error) {
  for (const DeviceValuePtr& value : pending.values) {
    value->source = {};
    const at::Tensor previous = std::exchange(value->previous, {});
    if (!has_overwritten) value->data = previous;
    if (value->data.defined()) continue;
    value->failure = text("the graph that computes this tensor failed: ", error.what());
  }
}

Recording::StepGraph Recording::run(const RecordedGraph& graph, const Pending& pending) {
  StepGraph ran;
  bool has_overwritten = false;
  try {
    ran.plan = plan_for(graph, &ran.is_new);
    const Stopwatch stopwatch;
    std::vector<at::Tensor> results = ran.plan->run(graph, &has_overwritten);
    for (size_t i = 0; i < results.size(); ++i) pending.values[i]->data = std::move(results[i]);
    device_metrics::count_execution(stopwatch.seconds());
  } catch (...) {
    give_up(pending, has_overwritten, Error::current());
    throw;
  }
  for (const DeviceValuePtr& value : pending.values) {
    value->source = {};
    value->previous.reset();
  }
  return ran;
}

bool Recording::execute_pending() {
  const std::lock_guard<std::mutex> running(execution_mutex_);
  const ReplayScope replaying;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  const Pending pending = take_pending();
  recorded_ = 0;
  std::vector<NodeResult> kept;
  for (const DeviceValuePtr& value : pending.values) kept.push_back(value->source);
  if (kept.empty() && pending.effects.empty()) return false;
  const RecordedGraph graph = RecordedGraph::of(kept, pending.effects);
  StepGraph ran = run(graph, pending);
  const bool is_largest = !since_step_.plan || ran.plan->outline().nodes.size() >
                                                   since_step_.plan->outline().nodes.size();
  if (is_largest) since_step_ = std::move(ran);
  return true;
}

void Recording::sync(const std::string& reason) {
  if (!is_replaying && execute_pending()) device_metrics::count_implicit_sync(reason);
}

void Recording::mark_step() {
  execute_pending();
  StepGraph step;
  {
    const std::lock_guard<std::mutex> running(execution_mutex_);
    std::swap(step, since_step_);
  }
  if (!step.plan) return;
  device_metrics::count_step();
  if (step.is_new) warn_of_new_graph(*step.plan);
  last_step_ = std::move(step.plan);
}

// Told after the step has run: its values do not depend on it.
void Recording::warn_of_new_graph(const ReplayPlan& plan) {
  if (++compiled_steps_ <= kExpectedStepGraphs || !last_step_) return;
  log(NXD_LOG_WARN,
      text("a step was compiled again, as graph ", compiled_steps_,
           " of this thread's steps; the first difference to the step before: ",
           GraphText(plan.outline()).first_difference(GraphText(last_step_->outline()))));
}

const RecordedGraph& Recording::step_graph() const {
  static const RecordedGraph none;
  return last_step_ ? last_step_->outline() : none;
}

}  // namespace nxd
