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
 * names the operator.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_mark_step(int32_t wait);

/** Counts of device XLA in this process, on all threads. */
typedef struct nxd_device_metrics {
  size_t struct_size;
  uint64_t recorded;       /**< operators */
  uint64_t steps;          /**< calls of nxd_mark_step that found something recorded */
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

/** [local] The graph of the last step that this thread has marked, as text: a line for each node
 *  with the shapes of its results and arguments. "" before the first step.
 *
 *  @param buf  as nxd_device_get_report.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_device_get_step_graph(char* buf, size_t cap, size_t* out_needed);

#ifdef __cplusplus
}
#endif

#endif /* NXD_DEVICE_H */
