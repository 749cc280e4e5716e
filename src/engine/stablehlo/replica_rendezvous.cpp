#include "engine/stablehlo/replica_rendezvous.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/launch/launcher.h"
#include "engine/stablehlo/client_lease.h"

namespace nxd {
namespace {

// Another function of the library's own, whose calls ranks may meet in. Checks of values have no
// results.
bool meets_by_calls(const RecordedNode& node) {
  const RecordedOperator& op = *node.call->op;
  return op.is_effect && !op.is_alone && !op.replay && !node.call->results.empty() &&
         node.call->exchanges.empty();
}

bool has_all(const std::vector<int>& ranks, const std::vector<int>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
}

// A rank's part of a run. Its graph is held, as another rank may still read it when this one has
// given up.
struct Replica {
  RecordedGraph graph{};
  std::vector<at::Tensor> results{};
  std::optional<Error> error{};
};

// Replicas that wait to be run, by numbers that their ranks tell one another.
class WaitingReplicas {
 public:
  static WaitingReplicas& instance() {
    static auto* waiting = new WaitingReplicas;
    return *waiting;
  }
  int64_t add(std::shared_ptr<Replica> replica) {
    const std::lock_guard<std::mutex> lock(mutex_);
    replicas_.emplace(++last_, std::move(replica));
    return last_;
  }
  void remove(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    replicas_.erase(number);
  }
  // Null if its rank has given up.
  std::shared_ptr<Replica> find(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = replicas_.find(number);
    return found == replicas_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  int64_t last_ = 0;
  std::map<int64_t, std::shared_ptr<Replica>> replicas_;
};

class WaitingScope {
 public:
  explicit WaitingScope(std::shared_ptr<Replica> replica)
      : number(WaitingReplicas::instance().add(std::move(replica))) {}
  ~WaitingScope() { WaitingReplicas::instance().remove(number); }
  WaitingScope(const WaitingScope&) = delete;
  WaitingScope& operator=(const WaitingScope&) = delete;

  const int64_t number;
};

void run_all(const std::vector<std::shared_ptr<Replica>>& replicas, const RunTogether& run) {
  // Devices run programs in the order in which they get them, which must be one order.
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  try {
    Graphs graphs;
    for (const auto& replica : replicas) {
      check_state(replica != nullptr, "device xla: a rank has given up this step");
      graphs.push_back(&replica->graph);
    }
    auto results = run(graphs);
    for (size_t i = 0; i < replicas.size(); ++i) replicas[i]->results = std::move(results[i]);
  } catch (...) {
    const Error error = Error::current();
    for (const auto& replica : replicas) {
      if (replica) replica->error = error;
    }
  }
}

}  // namespace

ReplicaRendezvous rendezvous_of(const RecordedGraph& outline) {
  ReplicaRendezvous out;
  for (size_t i = 0; i < outline.nodes.size(); ++i) {
    const RecordedNode& node = *outline.nodes[i];
    if (meets_by_calls(node)) return {};
    for (size_t k = 0; k < node.call->exchanges.size(); ++k) {
      const RecordedExchange& exchange = node.call->exchanges[k];
      if (!exchange.in_one_process || !exchange.all_record) return {};
      if (exchange.ranks.size() > out.ranks.size()) {
        out = {static_cast<int>(i), k, exchange.ranks, true};
      }
    }
  }
  if (out.ranks.size() < 2) return {};
  for (const auto& node : outline.nodes) {
    for (const RecordedExchange& exchange : node->call->exchanges) {
      if (!has_all(out.ranks, exchange.ranks)) return {};
      out.as_replicas =
          out.as_replicas && find_groups_of_replicas({out.ranks}, exchange.ranks).has_value();
    }
  }
  return out;
}

ModuleReplicas replicas_of(const RecordedGraph& outline) {
  ModuleReplicas out;
  if (pjrt_client().has_custom_calls()) {
    const ReplicaRendezvous rendezvous = rendezvous_of(outline);
    if (rendezvous.as_replicas) out.ranks = rendezvous.ranks;
    return out;
  }
  out.have_host = false;
  out.ranks.resize(static_cast<size_t>(detect_launch().size));
  std::iota(out.ranks.begin(), out.ranks.end(), 0);
  return out;
}

std::optional<std::vector<at::Tensor>> run_as_replica(ProcessGroup& group, uint64_t digest,
                                                      const RecordedGraph& graph,
                                                      const RunTogether& run, bool* has_begun) {
  const auto own = std::make_shared<Replica>();
  own->graph = graph;
  const WaitingScope waiting(own);
  using Entry = std::array<int64_t, 2>;
  const Entry entry{waiting.number, static_cast<int64_t>(digest)};
  std::vector<Entry> entries(static_cast<size_t>(group.size()));
  group.run(Call::all_gather(entry.data(), entries.data(), entry.size(), NXD_DTYPE_I64));
  const bool are_one_program = std::all_of(entries.begin(), entries.end(), [&](const Entry& e) {
    return e[1] != 0 && e[1] == entries[0][1];
  });
  if (!are_one_program) return std::nullopt;
  *has_begun = true;
  if (group.rank() == 0) {
    std::vector<std::shared_ptr<Replica>> replicas;
    for (const Entry& other : entries) {
      replicas.push_back(WaitingReplicas::instance().find(other[0]));
    }
    run_all(replicas, run);
  }
  group.run(Call::barrier());
  if (own->error) throw *own->error;
  return own->results;
}

void reject_run(ProcessGroup& group, const Error& error) {
  group.reject(Call::named("a step on device xla"), error.what());
}

}  // namespace nxd
