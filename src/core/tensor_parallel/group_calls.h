#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/agree/agree.h"
#include "core/world/context.h"

namespace nxd {

// The collectives of one call of a layer, once its ranks have agreed on the call. All ranks make
// equally many. A rank that fails before it has made them all rejects the next one, so that its
// peers fail instead of waiting.
class GroupCalls {
 public:
  GroupCalls(ProcessGroup& group, const char* operation, int count)
      : group_(group), operation_(operation), left_(group.size() > 1 ? count : 0) {}
  ~GroupCalls();
  GroupCalls(const GroupCalls&) = delete;
  GroupCalls& operator=(const GroupCalls&) = delete;

  void run(const Call& call);
  // Goes on while the caller computes; to be waited for before the next one.
  void start(const Call& call);
  void wait();
  // Tells the peers that this rank has failed, if they expect it in another collective.
  void give_up() noexcept;

 private:
  void made(const std::function<void()>& call);

  ProcessGroup& group_;
  const char* operation_;
  int left_;
  std::shared_ptr<Work> work_;
};

// The group of a context over which layers are split. INVALID_STATE without a layout, UNSUPPORTED
// for one with axes that layers do not reduce over.
std::shared_ptr<ProcessGroup> layer_group(const Context& context);

// Makes a plan, has the ranks of the group agree on it, and carries it out. A plan has
//   allocate()              takes its memory
//   propose(proposal, plan) adds what ranks must have alike; plan is null on a rank that rejects
//   collectives()           how many it makes, the same on all ranks
//   run(calls)
template <class Make>
void run_layer(const Context& context, const char* operation, const Make& make) {
  const std::shared_ptr<ProcessGroup> group = layer_group(context);
  using Plan = decltype(make(*group));
  Proposal proposal(context.rank(), operation);
  std::optional<Plan> plan;
  proposal.attempt([&] {
    plan.emplace(make(*group));
    plan->allocate();
  });
  Plan::propose(proposal, plan ? &*plan : nullptr);
  agree({group.get()}, proposal);
  GroupCalls calls(*group, operation, plan->collectives());
  try {
    plan->run(calls);
  } catch (...) {
    calls.give_up();
    throw;
  }
}

}  // namespace nxd
