#pragma once

#include <cstdint>
#include <string>

namespace nxd {

// Counts of the recorded device in this process; safe from any thread.
namespace device_metrics {

struct Counts {
  uint64_t recorded = 0;  // operators and functions
  uint64_t compiles = 0;
  uint64_t loads = 0;       // graphs whose programs were on the disk
  uint64_t cache_hits = 0;  // executions of a graph that had been made ready before
  uint64_t executions = 0;
  uint64_t steps = 0;           // marked
  uint64_t implicit_syncs = 0;  // executions that a read of a value asked for
  uint64_t fallbacks = 0;       // calls of operators that cannot be recorded
  uint64_t argument_bytes = 0;  // of the leaves of executions
  uint64_t result_bytes = 0;    // of their kept results
  uint64_t copied_bytes = 0;    // between tensors and a plug-in's memory
  uint64_t evictions = 0;       // graphs and programs that were let go of
  double compile_seconds = 0;
  double load_seconds = 0;
  double execute_seconds = 0;
};

Counts counts();
void reset();

void count_recorded();
void count_step();
// A graph that was made ready: loaded from the disk, or compiled.
void count_compile(double seconds, bool was_loaded);
void count_cache_hit();
void count_eviction();
void count_execution(double seconds, uint64_t argument_bytes, uint64_t result_bytes);
// The site is where the program asked for it (call_site.h).
void count_implicit_sync(const std::string& reason, const std::string& site);
// True if it is the first one of this operator in the process.
bool count_fallback(const std::string& operator_name);
// A call of the CPU by a compiled graph, for an operator that has no lowering.
void count_host_call(const std::string& operator_name);

// Values that a plug-in could not take where they lie, or did not write there.
void count_copied(uint64_t bytes);

// A line for each metric, each operator that synced or fell back, and each place that synced.
std::string report();

}  // namespace device_metrics

}  // namespace nxd
