#include "core/planner/plan_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.h"

namespace nxd {
namespace {

void fill(double& value, double fallback, double most, const char* name) {
  check_argument(std::isfinite(value) && value >= 0 && value <= most, "machine->", name,
                 ": expected 0 for its default, or a figure up to ", most, ", got ", value);
  if (value == 0) value = fallback;
}

bool is_one_host(const nxd_plan_machine_t& machine, int world) {
  return machine.ranks_per_host == 0 || world <= machine.ranks_per_host;
}

}  // namespace

nxd_plan_machine_t read_plan_machine(const nxd_plan_machine_t& given) {
  constexpr double kAny = std::numeric_limits<double>::max();
  nxd_plan_machine_t machine = given;
  check_argument(machine.ranks_per_host >= 0,
                 "machine->ranks_per_host: expected 0 for all ranks, or their number, got ",
                 machine.ranks_per_host);
  fill(machine.gemm_rate_f32, 100e9, kAny, "gemm_rate_f32");
  fill(machine.gemm_rate_bf16, 200e9, kAny, "gemm_rate_bf16");
  fill(machine.attention_share_f32, 0.68, 1, "attention_share_f32");
  fill(machine.attention_share_bf16, 0.64, 1, "attention_share_bf16");
  fill(machine.memory_bandwidth, 20e9, kAny, "memory_bandwidth");
  fill(machine.host_bandwidth, 20e9, kAny, "host_bandwidth");
  fill(machine.host_latency, 1e-6, kAny, "host_latency");
  fill(machine.link_bandwidth, 1.25e9, kAny, "link_bandwidth");
  fill(machine.link_latency, 50e-6, kAny, "link_latency");
  return machine;
}

GroupPlaces group_places(const nxd_plan_machine_t& machine, int world, int size, int stride) {
  const int per_host = machine.ranks_per_host;
  if (is_one_host(machine, world)) return {size, 1, 1};
  // Places in a host that are the stride apart; none where hosts do not begin at one.
  const int slots = per_host % stride == 0 ? per_host / stride : 1;
  const int on_host = std::gcd(size, slots);
  return {on_host, size / on_host, per_host / on_host};
}

CollectiveTime all_reduce_time(const nxd_plan_machine_t& machine, const GroupPlaces& places,
                               double bytes) {
  const CollectiveTime half = reduce_scatter_time(machine, places, bytes);
  return {2 * half.host, 2 * half.link};
}

// Hosts exchange what their ranks have put together: a slice for each rank, whose sum is the whole.
CollectiveTime reduce_scatter_time(const nxd_plan_machine_t& machine, const GroupPlaces& places,
                                   double bytes) {
  CollectiveTime time;
  const auto share = [](int ranks) { return static_cast<double>(ranks - 1) / ranks; };
  if (places.on_host > 1) {
    time.host = machine.host_latency + share(places.on_host) * bytes / machine.host_bandwidth;
  }
  if (places.hosts > 1) {
    time.link = std::ceil(std::log2(places.hosts)) * machine.link_latency +
                share(places.hosts) * bytes * places.groups / machine.link_bandwidth;
  }
  return time;
}

double message_time(const nxd_plan_machine_t& machine, int world, int stride, double bytes) {
  if (is_one_host(machine, world)) {
    return machine.host_latency + bytes / machine.host_bandwidth;
  }
  const int senders = std::min(machine.ranks_per_host, stride);
  return machine.link_latency + bytes * senders / machine.link_bandwidth;
}

}  // namespace nxd
