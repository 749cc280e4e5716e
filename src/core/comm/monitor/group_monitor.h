#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/monitor/flight_record.h"
#include "core/comm/monitor/rank_shared.h"
#include "core/comm/net/call_in_progress.h"
#include "core/comm/net/deadline.h"
#include "core/comm/net/interrupt.h"
#include "core/comm/store/store_timeout.h"

namespace nxd {

// Monitors the calls of one group, over any transport. It numbers, records and bounds them, finds
// the rank that holds a call up, and keeps the first failure, which every later call repeats. Ranks
// are world ranks throughout.
//
// Several threads may have a call each in progress at a time: one collective, and any number of
// messages. "The call in progress" is that of the calling thread.
class GroupMonitor {
 public:
  GroupMonitor(std::shared_ptr<const RankShared> shared, std::string key, std::string name,
               int world_rank, std::vector<int> ranks, int64_t timeout_ms);

  const RankShared& shared() const { return *shared_; }
  const std::shared_ptr<const RankShared>& share() const { return shared_; }
  const std::string& key() const { return key_; }  // names the group in the store
  const std::string& name() const { return name_; }
  int world_rank() const { return world_rank_; }
  const std::vector<int>& ranks() const { return ranks_; }
  void set_timeout_ms(int64_t timeout_ms);

  // Has a transport close what its peers wait at, once the group has failed or was aborted. The
  // function is called from any thread, perhaps more than once, until clear_on_failure.
  void on_failure(std::function<void()> close);
  void clear_on_failure();

  // Asked now and then while a call waits. An error ends the call, and the group with it.
  using FailureCheck = std::function<std::optional<Error>()>;
  void set_failure_check(FailureCheck check) { failure_check_ = std::move(check); }

  // A call in progress, which must end by the timeout. Fails when the group has failed before.
  // Calls made inside of it, on the groups that this one is made of, are part of it.
  class Scope : private CallInProgress {
   public:
    // The record is of what the caller asked for, good or bad. Collectives and messages are
    // numbered apart. The operation's name outlives the errors that name it.
    Scope(GroupMonitor& monitor, const char* operation, FlightRecord::Operation record);
    ~Scope();

    // The call's number among the group's collectives, or its messages.
    uint64_t sequence() const noexcept { return outermost_->sequence_; }
    // For destructors: an exception ends the call, or rather the one that it is part of.
    bool is_unwound() const noexcept;

   private:
    friend class GroupMonitor;

    GroupMonitor& monitor_;
    Scope* const outermost_;  // the call that this one is part of, or itself
    const char* operation_;
    uint64_t sequence_ = 0;
    int exceptions_ = 0;  // in flight when it began
    FlightRecord::Ticket ticket_;
    int64_t timeout_ms_ = 0;
    Deadline::Clock::time_point start_;
    Deadline::Clock::time_point next_poll_;
    std::chrono::milliseconds poll_pause_{0};
    bool wait_published_ = false;
    std::string rejection_;  // why this rank rejects the call; "" when it does not
    bool rejection_counted_ = false;
    bool wait_noted_ = false;                        // among those of the rank's callers
    std::optional<FailureRegistry::Circle> circle_;  // that this rank waits in, found at circle_at_
    Deadline::Clock::time_point circle_at_;
    bool circle_is_old_ = false;  // was found again when nothing was on its way any more
    int departed_ = -1;           // rank that was found to have left
    uint64_t departed_heard_ = 0;
    Deadline::Clock::time_point departed_at_;  // or was last heard of
  };

  // These describe the call in progress.
  const char* operation() const { return current().operation_; }
  uint64_t sequence() const { return current().sequence_; }
  int64_t timeout_ms() const { return current().timeout_ms_; }
  // An error of the call, with what it was doing in front of the message.
  Error error(nxd_status_t status, int root_rank, const std::string& message) const;

  // Fails when the group has failed, was aborted, or the world has lost a rank.
  void check_running();
  // This rank rejects the call in progress, and goes on to wait for its peers, who are told when
  // they come to it.
  void note_rejection(const std::string& why) { current().outermost_->rejection_ = why; }
  // To be called every few tens of milliseconds while waiting for a rank. Fails when there is no
  // use in waiting on. heard: another number whenever something has come from the rank.
  void poll(int awaited, uint64_t heard = 0);
  void wait_ended();
  [[noreturn]] void peer_lost(int rank, const std::string& how);
  // The store that the groups of this world share failed the call.
  [[noreturn]] void store_failed(const Error& error);
  // Poisons the group with this error, or with the one that came first.
  [[noreturn]] void fail_for_good(const Error& error);
  // The call cannot go on because of what a rank did, which may be this one. All others lose that
  // rank for this reason. Poisons the group as fail_for_good does.
  [[noreturn]] void fail_because_of(int rank, nxd_status_t status, const std::string& how);
  // A call ended by what only this rank knows of, such as a lack of memory: the ranks are not at
  // one place any more. Within a handler: poisons the group, lets the peers know, and throws what
  // the group has failed with. Works without memory.
  [[noreturn]] void break_off(const char* operation);
  bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  // Without a call in progress: INVALID_STATE in a forked child, and in an interrupt callback that
  // was asked during a call of the group.
  void check_caller(const char* operation) const;
  // Without a call in progress: the interrupt callback ended the wait for one that had not begun.
  // Poisons the group as it does a call that has, and lets the peers know.
  [[noreturn]] void interrupted(const char* operation, const Interruption& interruption);

  void abort() noexcept;  // from any thread
  bool aborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }

  GroupRecord record() const;  // from any thread

 private:
  // The time between a call's polls of the registry: at first, and in the end.
  std::chrono::milliseconds first_pause() const;
  std::chrono::milliseconds longest_pause(const Scope& call) const;
  // The bound of a request to the registry.
  StoreTimeout store_timeout() const;
  void begin(Scope& call, FlightRecord::Operation& record);
  void end(Scope& call) noexcept;
  Scope* find_call(CallInProgress* innermost) const noexcept;
  Scope& current() const;
  Error first_error() const noexcept;
  void poll_interrupt();
  void check_failure();
  void plan_polls(Scope& call) const;
  static int64_t waited_ms(const Scope& call);
  void check_departure(int awaited, uint64_t heard);
  void publish_wait(Scope& call, int awaited);
  bool check_rejection(Scope& call, int awaited);
  void check_circle(Scope& call, int awaited);
  std::string rejection_note() const;
  [[noreturn]] void timed_out(int awaited);
  [[noreturn]] void fail_with_loss();
  void poison(const Error& error) noexcept;
  void write_record() const noexcept;
  void close() noexcept;
  std::string describe(const char* operation) const;

  const std::shared_ptr<const RankShared> shared_;
  const std::string key_, name_;
  const int world_rank_;
  const std::vector<int> ranks_;
  std::atomic<int64_t> timeout_ms_;
  std::atomic<bool> aborted_{false};

  std::atomic<bool> failed_{false};
  mutable std::mutex first_error_mutex_;
  std::optional<Error> first_error_;  // set once
  FailureCheck failure_check_;

  std::mutex on_failure_mutex_;
  std::vector<std::function<void()>> on_failure_;

  uint64_t next_collective_ = 0;
  std::atomic<uint64_t> next_message_{0};
  FlightRecord flight_record_;
};

}  // namespace nxd
