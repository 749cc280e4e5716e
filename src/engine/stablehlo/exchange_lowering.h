#pragma once

#include <optional>
#include <vector>

#include "engine/device/recorded_graph.h"
#include "engine/stablehlo/hlo_builder.h"

namespace nxd {

// How ranks exchange tensors in a module: by calls of the host, or as replicas of one program by
// StableHLO's own collectives.
struct ModuleReplicas {
  // World ranks, each at the place of its replica. Empty: calls of the host.
  std::vector<int> ranks{};
  // Replicas can call the host for what has no lowering.
  bool have_host = true;

  bool exchange() const { return !ranks.empty(); }
};

// The groups of all replicas that make the same call as the group of these ranks. Ranks that are
// evenly spaced stand for all groups of such ranks, as those of a mesh are. UNSUPPORTED for others
// that are not all ranks.
HloGroups groups_of_replicas(const ModuleReplicas& replicas, const std::vector<int>& ranks);
// None for these.
std::optional<HloGroups> find_groups_of_replicas(const ModuleReplicas& replicas,
                                                 const std::vector<int>& ranks);

// A node's exchanges as operations of StableHLO. Replicas that were compiled apart exchange in one
// order: each exchange waits for the one before it.
class ExchangeLowering {
 public:
  ExchangeLowering(HloBuilder& hlo, const ModuleReplicas& replicas)
      : hlo_(hlo), replicas_(replicas) {}

  std::vector<HloValue> lower(const RecordedNode& node, std::vector<HloValue> values);
  // A result of the program's, which it does not give before its last exchange.
  HloValue after_all(const HloValue& result);

 private:
  HloValue lower(const RecordedExchange& exchange, const HloValue& x);

  HloBuilder& hlo_;
  const ModuleReplicas& replicas_;
  HloValue last_{};
};

}  // namespace nxd
