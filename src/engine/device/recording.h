#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "engine/device/recorded_node.h"
#include "engine/device/replay_plan.h"

namespace nxd {

class Recording;

// The value of a tensor on the device: known, or the result of a node that has not run yet.
struct DeviceValue : std::enable_shared_from_this<DeviceValue> {
  DeviceValue(std::shared_ptr<Recording> owner, at::Tensor shape);
  ~DeviceValue();
  DeviceValue(const DeviceValue&) = delete;
  DeviceValue& operator=(const DeviceValue&) = delete;

  // The value will be written to the memory of another, which keeps it should the graph fail
  // before.
  void set_previous(const DeviceValue& other);

  std::shared_ptr<Recording> recording;
  at::Tensor meta;        // shape and dtype, on the meta device
  at::Tensor data{};      // on the CPU, in C order; undefined while the value is not known
  at::Tensor previous{};  // what data was, and is again if the graph fails before it writes there
  NodeResult source{};    // the node that gives it, or a leaf over data
  uint64_t id = 0;
  // On the CPU it would be a view that sees its base in another order, or not from its beginning.
  bool is_reordered = false;
  std::string failure{};  // why the value will never be known
};

using DeviceValuePtr = std::shared_ptr<DeviceValue>;

// The calls of one thread that have not run yet. A rank may be a thread, and what its peers wait
// for must not stand behind another rank's calls.
//
// execution_mutex_ is held while nodes run, also when these wait for other ranks; mutex_ is not,
// so that tensors can be destroyed on other threads meanwhile.
class Recording : public std::enable_shared_from_this<Recording> {
 public:
  // This thread's.
  static const std::shared_ptr<Recording>& current();
  // This thread's if it has recorded anything yet, else null.
  static Recording* existing() noexcept;

  // A value that is known.
  DeviceValuePtr known(at::Tensor data);
  // The values of a new node's results; none where a result is undefined. The node is recorded.
  std::vector<DeviceValuePtr> add(const std::shared_ptr<RecordedNode>& node);
  static uint64_t next_id();

  // The node and result that stand for a value; a leaf for a known one. One that another thread
  // has recorded is executed there first.
  NodeResult source_of(DeviceValue& value);
  // The value, on the CPU. Executes what was recorded if it is not known yet, which counts as an
  // implicit sync for the reason.
  static at::Tensor value_of(DeviceValue& value, const std::string& reason);
  static void replace(DeviceValue& value, at::Tensor data);
  // A value becomes one that this thread has recorded, and that no other tensor has.
  void move_value(DeviceValue& from, DeviceValue& to);

  // Executes all that was recorded on this thread, which ends a step.
  void mark_step();
  // The same before the host writes into values' memory, which nodes may still have to read. The
  // step goes on. Counts as an implicit sync for the reason where anything was recorded.
  // Not while a graph runs on this thread, which may be where the caller stands.
  void sync(const std::string& reason);
  // The graph of the last step that was marked, the largest where syncs cut it.
  const RecordedGraph& step_graph() const;

 private:
  friend struct DeviceValue;

  struct Pending {
    std::vector<DeviceValuePtr> values{};
    std::vector<std::shared_ptr<RecordedNode>> effects{};
  };

  struct StepGraph {
    std::shared_ptr<const ReplayPlan> plan{};
    bool is_new = false;
  };

  void forget(const DeviceValue& value);
  void cut_if_too_long();
  Pending take_pending();
  bool execute_pending();  // whether there was anything
  StepGraph run(const RecordedGraph& graph, const Pending& pending);
  static void give_up(const Pending& pending, bool has_overwritten, const Error& error);
  void warn_of_new_graph(const ReplayPlan& plan);

  std::mutex execution_mutex_;
  std::mutex mutex_;
  std::map<uint64_t, DeviceValue*> pending_;  // in the order of the calls
  std::vector<std::shared_ptr<RecordedNode>> effects_;
  const uint64_t most_nodes_ = env::most_graph_nodes();
  std::atomic<uint64_t> recorded_{0};  // nodes since a graph has run
  bool has_warned_of_length_ = false;
  StepGraph since_step_;  // the largest that has run since the last step was marked
  std::shared_ptr<const ReplayPlan> last_step_;
  uint64_t compiled_steps_ = 0;
};

}  // namespace nxd
