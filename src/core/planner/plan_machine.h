#pragma once

#include <cstdint>

#include "nxd.h"

namespace nxd {

// Figures with their defaults filled in. INVALID_ARGUMENT names the field that is out of
// range.
nxd_plan_machine_t read_plan_machine(const nxd_plan_machine_t& given);

// The ranks of the whole world.
inline int ranks_in(const nxd_plan_layout_t& layout) {
  return layout.tensor_parallel_size * layout.pipeline_parallel_size * layout.data_parallel_size;
}

// The place of a group's ranks on hosts: evenly, so many on each of so many hosts.
struct GroupPlaces {
  int on_host = 1;
  int hosts = 1;
  int groups = 1;  // of such groups, how many of one host use its link at the same time

  int ranks() const { return on_host * hosts; }
};

// A group of `size` ranks that are `stride` ranks apart, in a world of so many.
GroupPlaces group_places(const nxd_plan_machine_t& machine, int world, int size, int stride);

// Seconds within hosts and between them, of collectives over bytes that each rank has at the
// beginning (reduce-scatter, all-reduce) or at the end (all-gather).
struct CollectiveTime {
  double host = 0;
  double link = 0;

  double sum() const { return host + link; }
};
CollectiveTime all_reduce_time(const nxd_plan_machine_t& machine, const GroupPlaces& places,
                               double bytes);
// Also of an all-gather.
CollectiveTime reduce_scatter_time(const nxd_plan_machine_t& machine, const GroupPlaces& places,
                                   double bytes);

// A message from one rank to the one `stride` ranks after it in a world of so many, in the worst
// place, while all ranks send theirs.
double message_time(const nxd_plan_machine_t& machine, int world, int stride, double bytes);

}  // namespace nxd
