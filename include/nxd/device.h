/** @file
 * The recorded device: a step as one graph. */
#ifndef NXD_DEVICE_H
#define NXD_DEVICE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** [local] The tensor's values on another device; the tensor itself if it is there already.
 *
 *  Recorded by autograd. From XLA to the CPU it runs what this thread has recorded, unless the
 *  value is known.
 *  @param device  NXD_DEVICE_CPU, NXD_DEVICE_XLA or NXD_DEVICE_META.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (device, or a tensor on the meta device, which has
 *          no values); the error of a recorded operator that fails when it runs.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_to_device(nxd_tensor_t* tensor, nxd_device_t device,
                                          nxd_tensor_t** out_tensor);

/** [blocking] Ends a step: runs what this thread has recorded on device XLA since the last step, as
 *  one graph. A graph that was not seen before is compiled first.
 *
 *  Does nothing where nothing was recorded, so that a program that calls it trains on the CPU, too.
 *  After a failure the tensors that the graph should have given stay without values.
 *  @param wait  1: returns when the graph has run. 0: may return earlier; the backend replay runs
 *               the graph before it returns all the same.
 *  @return NXD_OK; INVALID_ARGUMENT (wait); the error of an operator that fails, whose message
 *          names the operator; that of a step closure.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_mark_step(int32_t wait);

/** Called at the end of a step, on the thread that marks it. A failure is that of nxd_mark_step. */
typedef nxd_status_t (*nxd_step_closure_fn)(void* user_data);

/** [local] Has a function called by the next nxd_mark_step of this thread, once, when the step's
 *  graph has run. The values of the step are known then, so that reading one runs nothing.
 *
 *  Closures run in the order in which they were added, and also where nothing was recorded. One
 *  that is added by another belongs to the next step. When the graph or a closure fails, those that
 *  have not run are dropped.
 *  @param destroy  called with user_data when the closure has run, is dropped, or its thread ends;
 *                  may be NULL. On failure it is not called.
 *  @return NXD_OK; INVALID_ARGUMENT (closure).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_add_step_closure(nxd_step_closure_fn closure, void* user_data,
                                          nxd_destroy_fn destroy);

/** Counts of device XLA in this process, on all threads. */
typedef struct nxd_device_metrics {
  size_t struct_size;
  uint64_t recorded;       /**< operators */
  uint64_t steps;          /**< calls of nxd_mark_step that had something recorded before them */
  uint64_t graphs;         /**< different ones that are kept compiled */
  uint64_t compiles;       /**< graphs that were not seen before */
  uint64_t cache_hits;     /**< executions of a graph that was compiled already */
  uint64_t executions;     /**< graphs that have run */
  uint64_t implicit_syncs; /**< executions because a value was read, not because a step ended */
  uint64_t fallbacks;      /**< calls of operators that ran on the CPU as they cannot be recorded */
  double compile_seconds;
  double execute_seconds;
} nxd_device_metrics_t;

/** [local] Counts since the process began, or since nxd_device_reset_metrics.
 *
 *  @param[in,out] out_metrics  struct_size set by the caller.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_device_get_metrics(nxd_device_metrics_t* out_metrics);

/** [local] Starts all counts from 0 again; compiled graphs are kept.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_device_reset_metrics(void);

/** [local] The counts as text, a line of name and number each, and a line for each operator that
 *  made an implicit sync or fell back.
 *
 *  @param buf  room for cap bytes; may be NULL when cap is 0.
 *  @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
 *                          cap other than 0 is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_device_get_report(char* buf, size_t cap, size_t* out_needed);

/** How a graph is written down. */
typedef int32_t nxd_graph_format_t;
enum {
  NXD_GRAPH_FORMAT_INVALID = -1,
  NXD_GRAPH_FORMAT_TEXT = 0, /**< a line for each node, with the shapes of results and arguments */
  NXD_GRAPH_FORMAT_DOT = 1,  /**< for Graphviz */
  NXD_GRAPH_FORMAT_STABLEHLO = 2 /**< a StableHLO module, as a compiler is given it */
};

/** [local] The graph of the last step that this thread has marked; the largest, where reads of
 *  values made several of it. Before the first step it has no nodes.
 *
 *  @param buf  as nxd_device_get_report.
 *  @return NXD_OK; INVALID_ARGUMENT (format, cap).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_device_get_step_graph(nxd_graph_format_t format, char* buf, size_t cap,
                                               size_t* out_needed);

#ifdef __cplusplus
}
#endif

#endif /* NXD_DEVICE_H */
