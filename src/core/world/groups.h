#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/agree/outcome.h"
#include "core/comm/monitor/group_monitor.h"
#include "core/comm/monitor/group_rejections.h"
#include "core/comm/process_group.h"
#include "core/world/host_map.h"

namespace nxd {

// Makes the groups of one rank, and knows those that live.
class Groups {
 public:
  struct Settings {
    int rank = 0;
    HostMap hosts;
    std::vector<int> ranks_here;  // of this process, in ascending order
    nxd_transport_t transport = NXD_TRANSPORT_AUTO;
    int64_t timeout_ms = 0;
  };
  // rejections: null in a world of one.
  Groups(std::shared_ptr<RankShared> shared, Settings settings,
         std::unique_ptr<GroupRejections> rejections);

  // No rank is asked: the group connects on its first collective. All members make the same groups
  // of these ranks, in the same order.
  std::shared_ptr<ProcessGroup> make(const std::vector<int>& ranks, const std::string& name);
  // The same, by a caller who may be wrong: members meet, and hear of one that rejects its ranks,
  // or was given something else that is bad.
  std::shared_ptr<ProcessGroup> create(const std::vector<int>& ranks, const std::string& name,
                                       const Outcome& given = {});
  // A group that whatever needs it shares: made once for these ranks and this name, and kept until
  // forget_shared(). No rank is asked, so not all members need call.
  std::shared_ptr<ProcessGroup> shared(const std::vector<int>& ranks, const std::string& name);
  void forget_shared();

  const HostMap& hosts() const { return settings_.hosts; }  // of the world's ranks

  std::vector<std::shared_ptr<ProcessGroup>> living();
  // Aborts all groups, also those that are made later. From any thread.
  void abort() noexcept;
  // Aborts the groups that have works pending, and waits until these have ended.
  void end_works() noexcept;

 private:
  void check_list(const std::vector<int>& ranks) const;
  bool has_own_rank(const std::vector<int>& ranks) const;
  void check_members(const std::vector<int>& ranks) const;
  std::shared_ptr<ProcessGroup> make(const std::vector<int>& ranks, const std::string& name,
                                     const std::string& key,
                                     GroupMonitor::FailureCheck check = nullptr);
  std::shared_ptr<ProcessGroup> join(const std::vector<int>& ranks, const std::string& name);
  std::unique_ptr<Transport> make_transport(std::shared_ptr<GroupMonitor> monitor,
                                            const std::string& key, const std::vector<int>& ranks);
  template <class Condition>
  std::shared_ptr<ProcessGroup> find(const Condition& condition) noexcept;

  const std::shared_ptr<RankShared> shared_state_;
  const Settings settings_;
  const std::unique_ptr<GroupRejections> rejections_;

  std::mutex mutex_;  // of the list, against abort()
  std::vector<std::weak_ptr<ProcessGroup>> list_;
  std::atomic<bool> aborted_{false};
  std::map<std::string, int> made_by_key_;  // how many were made of the same ranks

  // The number tells keys of these groups from those of groups that were forgotten.
  std::mutex shared_mutex_;  // of both, against forget_shared(); taken before the other
  std::map<std::string, std::shared_ptr<ProcessGroup>> shared_groups_;
  int shared_number_ = 0;
};

}  // namespace nxd
