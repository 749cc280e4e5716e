#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/comm/monitor/rank_shared.h"
#include "core/world/background.h"
#include "core/world/context_options.h"
#include "core/world/groups.h"
#include "core/world/rendezvous.h"

namespace nxd {

// A rank among all ranks: how it joins them, and how it leaves.
class World {
 public:
  // Joins, collectively. options: as complete() gives them.
  explicit World(const ContextOptions& options);
  // With the environment's values in place of those that are absent.
  static ContextOptions complete(ContextOptions options);
  // Tells the others, as far as these options say how, that this rank does not join.
  static void reject(const ContextOptions& options) noexcept;

  int rank() const { return rank_info_.rank; }
  int size() const { return rank_info_.size; }
  int local_rank() const { return rank_info_.local_rank; }
  Arena& arena() const { return shared_->host->arena; }
  Groups& groups() const { return *groups_; }
  const HostMap& hosts() const { return groups_->hosts(); }
  Background& background() const { return *background_; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }  // of all ranks

  void finalize();
  void abort() noexcept;
  // Waits until no other thread is inside of an abort of this rank's groups.
  void wait_for_aborts() noexcept { shared_->aborts->wait_for_others(); }
  bool leave() noexcept;  // false in the interrupt callback of a call of it
  // The last operations of all living groups, as JSON. From any thread.
  std::string flight_record() const;

  void check_usable() const;
  void check_not_forked() const;
  // INVALID_STATE in the interrupt callback of a call of this world.
  void check_not_interrupted(const char* operation) const;

 private:
  void share(const WorldFacts& facts, const Deadline& joined_by, int64_t timeout_ms);
  void or_give_up(const std::function<void()>& part);
  void listen(const std::string& address, Store& store);

  RankInfo rank_info_;
  std::shared_ptr<RankShared> shared_;
  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<Background> background_;  // last: its tasks use all of the above
};

}  // namespace nxd
