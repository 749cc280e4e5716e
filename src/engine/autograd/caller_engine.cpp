#include "engine/autograd/caller_engine.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <utility>

#include "core/base/thread_own.h"
#include "engine/autograd/graph_nodes.h"
#include "engine/device/device_tensor.h"

namespace nxd {
namespace {

using torch::autograd::Engine;

// Each thread has one, whose queue of the device is that of the pass on this thread. It starts no
// threads.
class CallerEngine final : public Engine {
 public:
  CallerEngine() {
    start_no_threads(*this);
    thread_pool_shared_ = std::make_shared<ThreadPoolShared>();
  }
  ~CallerEngine() override { stop(); }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task,
      decltype(torch::autograd::Edge::function) root,
      torch::autograd::InputBuffer&& inputs) override {
    const QueuesOfPass queues(*this, task->cpu_ready_queue_);
    return Engine::execute_with_graph_task(task, std::move(root), std::move(inputs));
  }

 private:
  using Queues = std::vector<std::shared_ptr<torch::autograd::ReadyQueue>>;

  // Each engine of libtorch up to 2.6 starts threads of its own; later only the first of a process
  // does, which has to be libtorch's.
  template <class Self>
  static void start_no_threads(Self& self) {
    if constexpr (requires { self.start_device_threads_flag_; }) {
      c10::call_once(self.start_device_threads_flag_, [] {});
    } else {
      Engine::get_default_engine().initialize_device_threads_pool();
    }
  }

  // A pass inside of another has a queue of its own.
  class QueuesOfPass {
   public:
    QueuesOfPass(CallerEngine& engine, std::shared_ptr<torch::autograd::ReadyQueue> queue)
        : engine_(engine), outer_(std::exchange(engine.device_ready_queues_, {std::move(queue)})) {}
    ~QueuesOfPass() { engine_.device_ready_queues_ = std::move(outer_); }
    QueuesOfPass(const QueuesOfPass&) = delete;
    QueuesOfPass& operator=(const QueuesOfPass&) = delete;

   private:
    CallerEngine& engine_;
    Queues outer_;
  };
};

bool takes_recorded(const torch::autograd::Node& node) {
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    if (node.input_metadata(i).device().type() == kRecordedDeviceType) return true;
  }
  return false;
}

}  // namespace

bool leads_to_device(const torch::autograd::edge_list& roots) {
  if (!c10::impl::hasDeviceGuardImpl(kRecordedDeviceType)) return false;
  bool found = false;
  visit_nodes(roots, [&](const torch::autograd::Node& node) {
    found = takes_recorded(node);
    return !found;
  });
  return found;
}

Engine& engine_for(const torch::autograd::edge_list& roots) {
  if (!leads_to_device(roots)) return Engine::get_default_engine();
  return ThreadOwn<CallerEngine>::get();
}

}  // namespace nxd
