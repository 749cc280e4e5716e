# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/device.h."""

from __future__ import annotations

from enum import IntEnum

NAMES = """
typedef int32_t nxd_graph_format_t;
typedef struct nxd_device_metrics nxd_device_metrics_t;
"""

TYPES = """
typedef nxd_status_t (*nxd_step_closure_fn)(void* user_data);
struct nxd_device_metrics {
  size_t struct_size;
  uint64_t recorded;
  uint64_t steps;
  uint64_t graphs;
  uint64_t compiles;
  uint64_t cache_hits;
  uint64_t executions;
  uint64_t implicit_syncs;
  uint64_t fallbacks;
  double compile_seconds;
  double execute_seconds;
};
"""

FUNCTIONS = """
nxd_status_t nxd_tensor_to_device(nxd_tensor_t* tensor, nxd_device_t device, nxd_tensor_t** out_tensor);
nxd_status_t nxd_mark_step(int32_t wait);
nxd_status_t nxd_add_step_closure(nxd_step_closure_fn closure, void* user_data, nxd_destroy_fn destroy);
nxd_status_t nxd_device_get_metrics(nxd_device_metrics_t* out_metrics);
nxd_status_t nxd_device_reset_metrics(void);
nxd_status_t nxd_device_get_report(char* buf, size_t cap, size_t* out_needed);
nxd_status_t nxd_device_get_step_graph(nxd_graph_format_t format, char* buf, size_t cap, size_t* out_needed);
"""


class GraphFormat(IntEnum):
    """How a graph is written down."""

    INVALID = -1
    # a line for each node, with the shapes of results and arguments
    TEXT = 0
    # for Graphviz
    DOT = 1
    # a StableHLO module, as a compiler is given it
    STABLEHLO = 2
