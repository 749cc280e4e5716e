#include "engine/device/device_metrics.h"

#include <atomic>
#include <iomanip>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/text_stream.h"

namespace nxd::device_metrics {
namespace {

// A program that makes code as it runs could have any number.
constexpr size_t kMostSites = 1000;

struct State {
  std::mutex mutex;
  Counts counts;
  std::map<std::string, uint64_t> syncs, fallbacks, host_calls;
  std::map<std::pair<std::string, std::string>, uint64_t> sync_sites;  // by operator and site
  std::set<std::string> named;  // a reset forgets no operator that was named in the log
};

State& state() {
  static auto* kept = new State;  // threads may count while the process ends
  return *kept;
}

// Apart from the others: it is counted for every operator.
std::atomic<uint64_t> recorded{0};

template <class Change>
void change(Change&& with) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  with(s);
}

}  // namespace

Counts counts() {
  Counts out;
  change([&](State& s) { out = s.counts; });
  out.recorded = recorded.load(std::memory_order_relaxed);
  return out;
}

void reset() {
  change([](State& s) {
    s.counts = {};
    s.syncs.clear();
    s.sync_sites.clear();
    s.fallbacks.clear();
    s.host_calls.clear();
    recorded.store(0, std::memory_order_relaxed);
  });
}

void count_recorded() { recorded.fetch_add(1, std::memory_order_relaxed); }

void count_step() {
  change([](State& s) { ++s.counts.steps; });
}

void count_compile(double seconds, bool was_loaded) {
  change([&](State& s) {
    ++(was_loaded ? s.counts.loads : s.counts.compiles);
    (was_loaded ? s.counts.load_seconds : s.counts.compile_seconds) += seconds;
  });
}

void count_cache_hit() {
  change([](State& s) { ++s.counts.cache_hits; });
}

void count_eviction() {
  change([](State& s) { ++s.counts.evictions; });
}

void count_execution(double seconds, uint64_t argument_bytes, uint64_t result_bytes) {
  change([&](State& s) {
    ++s.counts.executions;
    s.counts.argument_bytes += argument_bytes;
    s.counts.result_bytes += result_bytes;
    s.counts.execute_seconds += seconds;
  });
}

void count_implicit_sync(const std::string& reason, const std::string& site) {
  change([&](State& s) {
    ++s.counts.implicit_syncs;
    ++s.syncs[reason];
    const bool is_known = s.sync_sites.count({reason, site}) != 0;
    if (is_known || s.sync_sites.size() < kMostSites) ++s.sync_sites[{reason, site}];
  });
}

bool count_fallback(const std::string& operator_name) {
  bool is_first = false;
  change([&](State& s) {
    ++s.counts.fallbacks;
    ++s.fallbacks[operator_name];
    is_first = s.named.insert(operator_name).second;
  });
  return is_first;
}

void count_host_call(const std::string& operator_name) {
  change([&](State& s) { ++s.host_calls[operator_name]; });
}

void count_copied(uint64_t bytes) {
  change([&](State& s) { s.counts.copied_bytes += bytes; });
}

std::string report() {
  const Counts c = counts();
  TextWriter out;
  out << std::fixed << std::setprecision(6);
  out << "recorded " << c.recorded << "\nsteps " << c.steps << "\ncompiles " << c.compiles
      << "\nloads " << c.loads << "\ncache_hits " << c.cache_hits << "\nexecutions " << c.executions
      << "\nimplicit_syncs " << c.implicit_syncs << "\nfallbacks " << c.fallbacks
      << "\nargument_bytes " << c.argument_bytes << "\nresult_bytes " << c.result_bytes
      << "\ncopied_bytes " << c.copied_bytes << "\nevictions " << c.evictions
      << "\ncompile_seconds " << c.compile_seconds << "\nload_seconds " << c.load_seconds
      << "\nexecute_seconds " << c.execute_seconds << '\n';
  change([&](State& s) {
    for (const auto& [name, times] : s.syncs)
      out << "implicit_sync " << name << ' ' << times << '\n';
    for (const auto& [place, times] : s.sync_sites)
      out << "implicit_sync_at " << place.second << ' ' << place.first << ' ' << times << '\n';
    for (const auto& [name, times] : s.fallbacks)
      out << "fallback " << name << ' ' << times << '\n';
    for (const auto& [name, times] : s.host_calls)
      out << "host_call " << name << ' ' << times << '\n';
  });
  check_stream(out);
  return out.str();
}

}  // namespace nxd::device_metrics
