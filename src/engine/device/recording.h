#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "engine/device/graph_rounding.h"
#include "engine/device/recorded_node.h"
#include "engine/device/replay_plan.h"
#include "engine/device/step_run.h"

namespace nxd {

class Recording;

// The value of a tensor on the device: known, or the result of a node that has not run yet. While
// the node runs the value is a leaf, which later nodes take, and which gets its tensor when the
// graph has run.
//
// Its fields are guarded by the recording's mutex, since a graph may end on another thread.
struct DeviceValue : std::enable_shared_from_this<DeviceValue> {
  DeviceValue(std::shared_ptr<Recording> owner, at::Tensor shape);
  ~DeviceValue();
  DeviceValue(const DeviceValue&) = delete;
  DeviceValue& operator=(const DeviceValue&) = delete;

  // The value will be written to the memory of another, which keeps it should the graph fail
  // before.
  void set_previous(const DeviceValue& other);
  // The value if it is known now, else undefined.
  at::Tensor known_data() const;
  bool is_lost() const;

  std::shared_ptr<Recording> recording;
  at::Tensor meta;      // shape and dtype, on the meta device
  at::Tensor data{};    // on the CPU, in C order; undefined while the value is not known
  NodeResult source{};  // the node that gives it, or a leaf over data
  // The leaf that it was, and is again if the graph fails before it writes there.
  std::shared_ptr<RecordedNode> previous{};
  uint64_t id = 0;
  // On the CPU it would be a view that sees its base in another order, or not from its beginning.
  bool is_reordered = false;
  std::string failure{};  // why the value will never be known
  // Neighbours among the values that are pending, in the order of the calls.
  DeviceValue *before = nullptr, *after = nullptr;
  bool is_pending = false;
};

using DeviceValuePtr = std::shared_ptr<DeviceValue>;
// The values of one node's results, of which there are few.
using DeviceValues = c10::SmallVector<DeviceValuePtr, 4>;

// Values that are not known yet, in the order of the calls: a list through the values themselves.
class PendingValues {
 public:
  DeviceValue* first() const { return first_; }
  void append(DeviceValue& value);
  void remove(DeviceValue& value);
  // A value that is not pending takes another's place.
  void replace(DeviceValue& value, DeviceValue& by);

 private:
  DeviceValue *first_ = nullptr, *last_ = nullptr;
};

// The calls of one thread that have not run yet. A rank may be a thread, and what its peers wait
// for must not stand behind another rank's calls.
//
// execution_ is taken while nodes run, also when these wait for other ranks; mutex_ is not, so that
// tensors can be destroyed on other threads meanwhile, and new calls be recorded. A step that is
// not waited for runs on a thread that belongs to this one, which has execution_ handed over: one
// step at a time. Its failure is kept for the first call of this thread that waits for it.
class Recording : public std::enable_shared_from_this<Recording> {
 public:
  Recording();
  ~Recording();

  // This thread's.
  static const std::shared_ptr<Recording>& current();
  // This thread's if it has recorded anything yet, else null.
  static Recording* existing() noexcept;

  // A value that is known.
  DeviceValuePtr known(at::Tensor data);
  // The values of a new node's results; none where a result is undefined. The node is recorded,
  // and gets its id.
  DeviceValues add(const std::shared_ptr<RecordedNode>& node);

  // The node and result that stand for a value; a leaf for a known one. One that another thread
  // has recorded is executed there first.
  NodeResult source_of(DeviceValue& value);
  // The value, on the CPU. Executes what was recorded if it is not known yet, which counts as an
  // implicit sync for the reason.
  static at::Tensor value_of(DeviceValue& value, const std::string& reason);
  static void replace(DeviceValue& value, at::Tensor data);
  // A value becomes one that this thread has recorded, and that no other tensor has.
  void move_value(DeviceValue& from, DeviceValue& to);

  // See kernel_call.h.
  bool records_kernels() const { return records_kernels_; }

  // Executes all that was recorded on this thread, which ends a step; without waiting on the other
  // thread. Gives what runs there, or null.
  std::shared_ptr<StepRun> mark_step(bool wait);
  // Waits for a step that runs. Its failure stays for a call that executes, or reads.
  void wait();
  // The same before the host writes into values' memory, which nodes may still have to read. The
  // step goes on. Counts as an implicit sync for the reason where anything was recorded.
  // Not while a graph runs on this thread, which may be where the caller stands.
  void sync(const std::string& reason);
  // The graph of the last step that was marked, the largest where syncs cut it.
  RecordedGraph step_graph();

 private:
  friend struct DeviceValue;

  static uint64_t next_id();

  // A value that a graph is to give.
  struct Wanted {
    DeviceValuePtr value{};
    NodeResult source{};
    std::shared_ptr<RecordedNode> leaf{};  // gets the value; not the value's if that has moved on
    std::shared_ptr<RecordedNode> previous{};
  };
  struct Pending {
    std::vector<Wanted> values{};
    std::vector<std::shared_ptr<RecordedNode>> effects{};

    bool is_empty() const { return values.empty() && effects.empty(); }
  };
  // A step on the other thread that has failed.
  struct Failure {
    Pending pending{};
    bool has_overwritten = false;
    Error error;
  };
  // execution_, once the step that runs has ended. INVALID_STATE within a graph of this recording.
  class Execution {
   public:
    explicit Execution(Recording& recording);
    ~Execution();
    Execution(const Execution&) = delete;
    Execution& operator=(const Execution&) = delete;
    void hand_over() { is_handed_over_ = true; }

   private:
    Recording& recording_;
    bool is_handed_over_ = false;
  };

  struct StepGraph {
    std::shared_ptr<const ReplayPlan> plan{};
    bool is_new = false;
  };

  void forget(DeviceValue& value);
  void cut_if_too_long();
  Pending take_pending();
  bool execute_pending();  // whether there was anything
  void run(const Pending& pending, bool* has_overwritten);
  std::shared_ptr<StepRun> start(Execution& execution);
  void run_beside(Pending& pending, StepRun& run);
  void finish_step();
  void set_results(const Pending& pending, const std::vector<at::Tensor>& results);
  void give_up(const Pending& pending, bool has_overwritten, const Error& error);
  void report_failure();
  void warn_of_new_graph(const ReplayPlan& plan);

  ExecutionLock execution_;
  // With execution_:
  std::optional<Failure> failure_;
  StepGraph since_step_;  // the largest that has run since the last step was marked
  std::shared_ptr<const ReplayPlan> last_step_;
  uint64_t compiled_steps_ = 0;
  GraphRounding::Numbers graphs_run_;

  std::mutex mutex_;
  PendingValues pending_;
  std::vector<std::shared_ptr<RecordedNode>> effects_;
  std::shared_ptr<StepRun> running_;
  const std::optional<uint64_t> rounding_seed_;  // of stochastic rounding to bf16
  const bool records_kernels_;
  const uint64_t most_nodes_ = env::most_graph_nodes();
  std::atomic<uint64_t> recorded_{0};  // nodes since a graph has run
  bool has_warned_of_length_ = false;
};

}  // namespace nxd
