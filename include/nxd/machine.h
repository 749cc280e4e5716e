/** @file
 * The machine: its device, limits to compare with, where the time goes. */
#ifndef NXD_MACHINE_H
#define NXD_MACHINE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** [local] 1 when NXD_CPU_MODE asks for eager execution on the CPU.
 *  @since 0.1 */
NXD_API int32_t nxd_cpu_mode(void);

/** [local] Device this process trains on: the CPU with NXD_CPU_MODE=1; else device XLA, when
 *  NXD_XLA_BACKEND is set or a PJRT plug-in is found.
 *
 *  The plug-in is that of NXD_PJRT_PLUGIN, that of NEURON_LIBRARY_PATH, or Neuron's
 *  libneuronpjrt.so, where the loader finds it or in /opt/aws/neuron/lib: the first of these.
 *  @return NXD_OK; UNSUPPORTED when NXD_CPU_MODE is not 1 and there is neither; the message lists
 *          what was looked for.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_get_device(nxd_device_t* out_device);

/** [local] Measures the machine's matrix-product peak: square products, the median of a
 *  few runs on this thread's OpenMP team.
 *
 *  @param dtype  F32 or BF16.
 *  @param size   edge; 0: 2048.
 *  @param[out] out_rate  floating-point operations per second, 2 size^3 per product.
 *  @return NXD_OK; INVALID_ARGUMENT (dtype, size); OUT_OF_MEMORY.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t size, double* out_rate);

/** [local] Ends the threads that the library and OpenMP keep for the calling thread between calls.
 *  The next call that needs threads starts new ones. Otherwise the library's threads spin for 50 us
 *  after each call, OpenMP's for some milliseconds, and then sleep. Older OpenMP keeps its own.
 *
 *  @return NXD_OK; INVALID_STATE (inside a parallel region); UNSUPPORTED (OpenMP before 5.0).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_release_threads(void);

/** Work that the library spends time on while it trains. */
typedef int32_t nxd_phase_t;
enum {
  NXD_PHASE_INVALID = -1,
  NXD_PHASE_GEMM_FORWARD = 0,     /**< y = x W^T of linear layers */
  NXD_PHASE_GEMM_INPUT_GRAD = 1,  /**< dx = dy W */
  NXD_PHASE_GEMM_WEIGHT_GRAD = 2, /**< dW = dy^T x */
  NXD_PHASE_ATTENTION = 3,        /**< with its products */
  NXD_PHASE_CROSS_ENTROPY = 4,
  NXD_PHASE_ELEMENTWISE = 5,  /**< norms, activations, rotary and other embeddings, casts */
  NXD_PHASE_OPTIMIZER = 6,    /**< updates, and norms and scaling of gradients */
  NXD_PHASE_COMMUNICATION = 7 /**< collectives and messages, with the wait for other ranks */
};

/** Time and calls of a phase, from nxd_profile_get_phase. */
typedef struct nxd_phase_stats {
  size_t struct_size;
  const char* name;  /**< static storage, such as "GEMM forward" */
  double seconds;    /**< wall time of the threads that called kernels, added up */
  double operations; /**< floating-point operations: of GEMMs 2 m n k, of attention those that the
                          mask leaves, without the scores computed again; 0 elsewhere */
  uint64_t calls;
  double waiting_seconds; /**< of these seconds, those in which a rank had come to a collective or
                               a message and its peers had not; over TCP with the way of headers
                               and of small data. The rest of communication moves and adds data */
} nxd_phase_stats_t;

/** [local] Clears the phases of the process and counts from now on. Fused kernels and collectives
 *  count, plain ATen operators do not. A kernel's phase includes the kernels that it calls. While
 *  on, each kernel reads a clock twice; while off, the cost is too small to be measured.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_profile_start(void);

/** [local] Ends counting; the phases keep what they have. Kernels in progress are counted still.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_profile_stop(void);

/** [local] Reads one phase, while counting or later.
 *
 *  @param phase  an NXD_PHASE_*; INVALID_ARGUMENT for others, so that a loop from 0 ends there.
 *  @param[in,out] out_stats  struct_size set by the caller.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_profile_get_phase(nxd_phase_t phase, nxd_phase_stats_t* out_stats);

#ifdef __cplusplus
}
#endif

#endif /* NXD_MACHINE_H */
