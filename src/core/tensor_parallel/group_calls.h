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
  // Does this rank's part of the call. If it fails, the peers are told, where they expect this rank
  // in another collective.
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (...) {
      give_up();
      throw;
    }
  }

 private:
  void give_up() noexcept;
  void made(const std::function<void()>& call);

  ProcessGroup& group_;
  const char* operation_;
  int left_;
  std::shared_ptr<Work> work_;
};

// The group of a context over which layers are split. INVALID_STATE without a layout, UNSUPPORTED
// for one with axes that layers do not reduce over.
std::shared_ptr<ProcessGroup> layer_group(const Context& context);

// Carries out a plan that the ranks of the group are known to have alike: see run_layer().
template <class Plan>
void run_alike(ProcessGroup& group, const char* operation, Plan plan) {
  GroupCalls calls(group, operation, plan.collectives());
  calls.attempt([&] {
    plan.allocate();
    plan.run(calls);
  });
}

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
  calls.attempt([&] { plan->run(calls); });
}

}  // namespace nxd
