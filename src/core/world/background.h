#pragma once

#include <functional>
#include <memory>

#include "core/comm/work_queues.h"

namespace nxd {

// The work of a rank beside the calls of its program: tasks that run one after the other, in the
// order they were started in, on a thread of the library's own. They use groups that nothing else
// does (Context::background_group), so that their calls meet no other.
class Background {
 public:
  explicit Background(std::shared_ptr<const RankShared> shared) : shared_(std::move(shared)) {}

  // The name outlives the work. Nobody cancels it: the peers count on it.
  std::shared_ptr<Work> start(const char* name, std::function<void()> task);
  // Until all tasks have ended, well or not. Asks the interrupt callback meanwhile.
  void wait(const char* operation);
  // The same, without asking.
  void end() noexcept;

 private:
  const std::shared_ptr<const RankShared> shared_;
  WorkQueues queues_;
};

}  // namespace nxd
