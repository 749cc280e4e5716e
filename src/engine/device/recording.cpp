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
#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/public_call.h"
#include "core/base/thread_count.h"
#include "core/base/thread_own.h"
#include "engine/device/call_site.h"
#include "engine/device/closure_thread.h"
#include "engine/device/device_copy.h"
#include "engine/device/device_metrics.h"
#include "engine/device/graph_rounding.h"
#include "engine/device/graph_text.h"
#include "engine/device/replay_scope.h"

namespace nxd {
namespace {

// The first step differs from the second, which finds the optimizer's state in place of zeros.
constexpr uint64_t kExpectedStepGraphs = 2;

struct RecordingOfThread {
  const std::shared_ptr<Recording> recording = std::make_shared<Recording>();
};

// Runs this thread's steps that are not waited for. Each has ended before it goes: values of other
// threads may wait for it.
class ThreadOfSteps : public LazyClosureThread {
 public:
  ThreadOfSteps() : LazyClosureThread("for a recorded step") {}
  ~ThreadOfSteps() {
    if (ClosureThread* const thread = existing()) thread->wait();
  }
};

uint64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string failure_text(const Error& error) {
  return text("the graph that computes this tensor failed: ", error.what());
}

}  // namespace

void PendingValues::append(DeviceValue& value) {
  value.before = std::exchange(last_, &value);
  value.after = nullptr;
  (value.before ? value.before->after : first_) = &value;
  value.is_pending = true;
}

void PendingValues::remove(DeviceValue& value) {
  if (!std::exchange(value.is_pending, false)) return;
  (value.before ? value.before->after : first_) = value.after;
  (value.after ? value.after->before : last_) = value.before;
}

void PendingValues::replace(DeviceValue& value, DeviceValue& by) {
  by.before = value.before;
  by.after = value.after;
  (by.before ? by.before->after : first_) = &by;
  (by.after ? by.after->before : last_) = &by;
  by.is_pending = std::exchange(value.is_pending, false);
}

DeviceValue::DeviceValue(std::shared_ptr<Recording> owner, at::Tensor shape)
    : recording(std::move(owner)), meta(std::move(shape)) {}

DeviceValue::~DeviceValue() { recording->forget(*this); }

void DeviceValue::set_previous(const DeviceValue& other) {
  const std::lock_guard<std::mutex> lock(recording->mutex_);
  const bool was_leaf = other.source.node && other.source.node->is_leaf();
  previous = was_leaf ? other.source.node : other.previous;
}

at::Tensor DeviceValue::known_data() const {
  at::Tensor known;
  {
    const std::lock_guard<std::mutex> lock(recording->mutex_);
    known = data;
  }
  return on_host(known);
}

bool DeviceValue::is_lost() const {
  const std::lock_guard<std::mutex> lock(recording->mutex_);
  return !failure.empty();
}

const std::shared_ptr<Recording>& Recording::current() {
  return ThreadOwn<RecordingOfThread>::get().recording;
}

Recording::Recording()
    : rounding_seed_(GraphRounding::seed_of_environment()),
      records_kernels_(!rounding_seed_ && !has_graph_compiler()) {
  PublicCall::make_known();  // for counts of implicit syncs
}

Recording* Recording::existing() noexcept {
  const auto* const own = ThreadOwn<RecordingOfThread>::find();
  return own ? own->recording.get() : nullptr;
}

uint64_t Recording::next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void Recording::forget(DeviceValue& value) {
  if (value.id == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.remove(value);
}

DeviceValuePtr Recording::known(at::Tensor data) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  auto value = std::make_shared<DeviceValue>(
      shared_from_this(),
      at::empty(data.sizes(), at::TensorOptions().dtype(data.scalar_type()).device(at::kMeta)));
  value->data = std::move(data);
  return value;
}

DeviceValues Recording::add(const std::shared_ptr<RecordedNode>& node) {
  device_metrics::count_recorded();
  node->id = next_id();
  const std::vector<at::Tensor>& results = node->call->results;
  DeviceValues values(results.size());
  const std::shared_ptr<Recording> self = shared_from_this();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!results[i].defined()) continue;
    values[i] = std::make_shared<DeviceValue>(self, results[i]);
    values[i]->source = {node, static_cast<int>(i)};
    values[i]->id = next_id();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const DeviceValuePtr& value : values) {
      if (value) pending_.append(*value);
    }
    if (node->call->op->is_effect) effects_.push_back(node);
  }
  cut_if_too_long();
  return values;
}

// A program that never ends a step would fill the memory, and no compiler takes such a graph.
void Recording::cut_if_too_long() {
  if (++recorded_ < most_nodes_ || ReplayScope::innermost()) return;
  if (!std::exchange(has_warned_of_length_, true)) {
    log(NXD_LOG_WARN, "device xla: ", most_nodes_, " operators were recorded without the end of a ",
        "step: they run as a graph of their own (NXD_MAX_GRAPH_NODES); call nxd_mark_step at the ",
        "end of each step");
  }
  sync("nxd::graph_limit");
}

Recording::Execution::Execution(Recording& recording) : recording_(recording) {
  check_state(
      !ReplayScope::has(recording),
      "device xla: a step is running where this call comes from, as the interrupt callback ",
      "of a call of the step: its thread's values cannot be read or written here");
  recording.wait();
  recording.execution_.lock();
}

Recording::Execution::~Execution() {
  if (!is_handed_over_) recording_.execution_.unlock();
}

NodeResult Recording::source_of(DeviceValue& value) {
  if (value.recording.get() != this) value_of(value, "a tensor of another thread");
  const std::lock_guard<std::mutex> lock(value.recording->mutex_);
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
    const Execution execution(owner);
    const bool is_own = &owner == existing();
    if (is_own) owner.report_failure();
    const std::lock_guard<std::mutex> lock(owner.mutex_);
    waits = !value.data.defined() && value.failure.empty();
    if (waits && owner.failure_) {
      fail(NXD_ERROR_INVALID_STATE, failure_text(owner.failure_->error));
    }
  }
  if (waits) {
    device_metrics::count_implicit_sync(reason, call_site());
    owner.execute_pending();
  }
  at::Tensor data;
  {
    const std::lock_guard<std::mutex> lock(owner.mutex_);
    check_state(value.failure.empty(), value.failure);
    check_internal(value.data.defined(), "a recorded value is missing after its graph has run");
    data = value.data;
  }
  return on_host(data);
}

void Recording::replace(DeviceValue& value, at::Tensor data) {
  Recording& owner = *value.recording;
  at::Tensor meta = at::empty(data.sizes(), data.options().device(at::kMeta));
  const Execution execution(owner);
  owner.forget(value);
  // They may own other values, and go without the lock.
  NodeResult source;
  std::shared_ptr<RecordedNode> previous;
  const std::lock_guard<std::mutex> lock(owner.mutex_);
  value.id = 0;
  std::swap(value.source, source);
  std::swap(value.previous, previous);
  value.failure.clear();
  value.meta = std::move(meta);
  std::swap(value.data, data);
}

void Recording::move_value(DeviceValue& from, DeviceValue& to) {
  check_internal(from.recording.get() == this && from.id != 0, "a value that is not recorded here");
  to.recording->forget(to);
  // They may own other values, and go without the lock.
  at::Tensor data;
  NodeResult source;
  std::shared_ptr<RecordedNode> previous;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(to.data, data);
  std::swap(to.source, source);
  std::swap(to.previous, previous);
  to.recording = shared_from_this();
  std::swap(to.source, from.source);
  std::swap(to.previous, from.previous);
  std::swap(to.data, from.data);  // known if the graph was cut behind it
  to.failure.clear();
  to.is_reordered = false;
  to.id = std::exchange(from.id, 0);
  from.failure = "a value that another tensor has taken";
  if (from.is_pending) pending_.replace(from, to);
}

// Each value becomes a leaf without a tensor, so that later calls take what the graph will give.
Recording::Pending Recording::take_pending() {
  Pending out;
  const std::lock_guard<std::mutex> lock(mutex_);
  while (DeviceValue* const value = pending_.first()) {
    pending_.remove(*value);
    // One that another thread is destroying waits for the mutex: it is not needed any more.
    DeviceValuePtr held = value->weak_from_this().lock();
    if (!held) continue;
    auto leaf = std::make_shared<RecordedNode>();
    NodeResult source = std::exchange(held->source, {leaf, 0});
    auto previous = std::exchange(held->previous, {});
    out.values.push_back(
        {std::move(held), std::move(source), std::move(leaf), std::move(previous)});
  }
  out.effects.swap(effects_);
  recorded_ = 0;
  return out;
}

void Recording::set_results(const Pending& pending, const std::vector<at::Tensor>& results) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < results.size(); ++i) {
    const Wanted& wanted = pending.values[i];
    wanted.leaf->leaf = results[i];
    if (wanted.value->source.node == wanted.leaf) wanted.value->data = results[i];
  }
}

// Values that nothing has overwritten are what they were before the graph.
void Recording::give_up(const Pending& pending, bool has_overwritten, const Error& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Wanted& wanted : pending.values) {
    if (!has_overwritten && wanted.previous) wanted.leaf->leaf = wanted.previous->leaf;
    DeviceValue& value = *wanted.value;
    if (value.source.node != wanted.leaf) continue;
    value.data = wanted.leaf->leaf;
    if (value.data.defined()) continue;
    value.source = {};
    value.failure = failure_text(error);
  }
}

// Calls that were recorded behind the step that has failed take values that it should have given.
void Recording::report_failure() {
  if (!failure_) return;
  const Failure failed = *std::exchange(failure_, std::nullopt);
  give_up(failed.pending, failed.has_overwritten, failed.error);
  give_up(take_pending(), false, failed.error);
  throw Error(failed.error);
}

void Recording::run(const Pending& pending, bool* has_overwritten) {
  const ReplayScope replaying(*this);
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  std::vector<NodeResult> kept;
  for (const Wanted& wanted : pending.values) kept.push_back(wanted.source);
  const RecordedGraph graph = RecordedGraph::of(kept, pending.effects);
  StepGraph ran;
  ran.plan = plan_for(graph, &ran.is_new);
  const Stopwatch stopwatch;
  std::optional<GraphRounding> rounding;
  graphs_run_.count(!pending.effects.empty());
  if (rounding_seed_) rounding.emplace(*rounding_seed_, graphs_run_);
  const std::vector<at::Tensor> results =
      ran.plan->run(graph, has_overwritten, rounding ? &*rounding : nullptr);
  set_results(pending, results);
  device_metrics::count_execution(stopwatch.seconds(), bytes_of(graph.leaves), bytes_of(results));
  const bool is_largest = !since_step_.plan || ran.plan->outline().nodes.size() >
                                                   since_step_.plan->outline().nodes.size();
  if (is_largest) since_step_ = std::move(ran);
}

bool Recording::execute_pending() {
  const Execution execution(*this);
  report_failure();
  const Pending pending = take_pending();
  if (pending.is_empty()) return false;
  bool has_overwritten = false;
  try {
    run(pending, &has_overwritten);
  } catch (...) {
    give_up(pending, has_overwritten, Error::current());
    throw;
  }
  return true;
}

void Recording::sync(const std::string& reason) {
  if (ReplayScope::innermost() || !execute_pending()) return;
  device_metrics::count_implicit_sync(reason, call_site());
}

void Recording::wait() {
  std::shared_ptr<StepRun> running;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running = running_;
  }
  if (!running) return;
  running->wait();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (running_ == running) running_.reset();
}

std::shared_ptr<StepRun> Recording::mark_step(bool wait) {
  if (wait) execute_pending();
  Execution execution(*this);
  report_failure();
  if (!wait) return start(execution);
  finish_step();
  return nullptr;
}

// Hands the execution over, unless there is nothing to be done.
std::shared_ptr<StepRun> Recording::start(Execution& execution) {
  ClosureThread& thread = ThreadOwn<ThreadOfSteps>::get().started();
  const auto pending = std::make_shared<Pending>(take_pending());
  if (pending->is_empty()) {
    finish_step();
    return nullptr;
  }
  try {
    const auto made = std::make_shared<StepRun>();
    const int threads = at::get_num_threads();
    thread.add([self = shared_from_this(), pending, made, threads] {
      at::get_num_threads();  // the first call of a thread sets a default
      set_thread_count(threads);
      self->run_beside(*pending, *made);
    });
    execution.hand_over();
    DeputyCalls::expect(made->calls());
    const std::lock_guard<std::mutex> lock(mutex_);
    return running_ = made;
  } catch (...) {
    give_up(*pending, false, Error::current());
    throw;
  }
}

void Recording::run_beside(Pending& pending, StepRun& step) {
  bool has_overwritten = false;
  std::optional<Error> error;
  try {
    const DeputyCalls::Scope calls(*step.calls());
    run(pending, &has_overwritten);
    // Values and nodes go while the execution is this thread's.
    pending = {};
    finish_step();
  } catch (...) {
    error = Error::current();
    failure_ = Failure{std::move(pending), has_overwritten, *error};
  }
  execution_.unlock();
  step.end(!error);
}

void Recording::finish_step() {
  const StepGraph step = std::exchange(since_step_, {});
  if (!step.plan) return;
  device_metrics::count_step();
  if (step.is_new) warn_of_new_graph(*step.plan);
  last_step_ = step.plan;
}

// Told after the step has run: its values do not depend on it.
void Recording::warn_of_new_graph(const ReplayPlan& plan) {
  if (++compiled_steps_ <= kExpectedStepGraphs || !last_step_) return;
  log(NXD_LOG_WARN,
      text("a step was compiled again, as graph ", compiled_steps_,
           " of this thread's steps; the first difference to the step before: ",
           GraphText(plan.outline()).first_difference(GraphText(last_step_->outline()))));
}

RecordedGraph Recording::step_graph() {
  const Execution execution(*this);
  return last_step_ ? last_step_->outline() : RecordedGraph();
}

Recording::~Recording() {
  if (failure_) log(NXD_LOG_ERROR, "a step that nothing has waited for: ", failure_->error.what());
}

}  // namespace nxd
