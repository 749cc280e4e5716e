# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/device.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

NAMES = """
typedef int32_t nxd_graph_format_t;
typedef struct nxd_device_loader nxd_device_loader_t;
typedef struct nxd_device_loader_options nxd_device_loader_options_t;
typedef struct nxd_device_metrics nxd_device_metrics_t;
"""

TYPES = """
typedef nxd_status_t (*nxd_step_closure_fn)(void* user_data);
typedef nxd_status_t (*nxd_read_batch_fn)(nxd_tensor_t** outputs, size_t num_outputs, int32_t* out_end, void* user_data);
struct nxd_device_loader_options {
  size_t struct_size;
  int32_t batches_per_execution;
  int32_t prefetch;
};
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
nxd_status_t nxd_add_step_closure_async(nxd_step_closure_fn closure, void* user_data, nxd_destroy_fn destroy);
nxd_status_t nxd_wait_step_closures(void);
nxd_status_t nxd_device_loader_options_init(nxd_device_loader_options_t* options, size_t size);
nxd_status_t nxd_device_loader_create(nxd_data_loader_t* loader, nxd_device_t device, const nxd_device_loader_options_t* options, nxd_device_loader_t** out_loader);
nxd_status_t nxd_device_loader_create_callback(nxd_read_batch_fn read, void* user_data, nxd_destroy_fn destroy, size_t num_tensors, nxd_device_t device, const nxd_device_loader_options_t* options, nxd_device_loader_t** out_loader);
nxd_status_t nxd_device_loader_next(nxd_device_loader_t* loader, nxd_tensor_t** outputs, size_t num_outputs, int32_t* out_end);
nxd_status_t nxd_device_loader_get_position(nxd_device_loader_t* loader, int64_t* out_position);
nxd_status_t nxd_device_loader_set_position(nxd_device_loader_t* loader, int64_t position);
void nxd_device_loader_destroy(nxd_device_loader_t* loader);
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


class DeviceLoaderOptions(TypedDict, total=False):
    """How a device loader works."""

    # batches that one step takes; 0: 1; at most 2^20
    batches_per_execution: int
    # batches on the device that wait; 0: 2; at most 1024
    prefetch: int
