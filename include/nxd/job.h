/** @file
 * Processes started together on this host. A job is started by nxd_spawn. */
#ifndef NXD_JOB_H
#define NXD_JOB_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Processes started together on this host. */
typedef struct nxd_job nxd_job_t;

/** Options of nxd_spawn. */
typedef struct nxd_spawn_options {
  size_t struct_size;
  int32_t num_processes;   /**< at most 65536; 0: NEURON_NUM_DEVICES, NEURONCORE_NUM_DEVICES, or
                              1 */
  int32_t omp_num_threads; /**< OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one
                              process */
  const char* const* argv; /**< NULL-terminated program, which is looked for in PATH where it has
                              no '/', and arguments; NULL: this program, re-executed with the
                              arguments it was started with */
} nxd_spawn_options_t;

#define NXD_SPAWN_OPTIONS_INIT \
  { sizeof(nxd_spawn_options_t), 0, 0, NULL }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_spawn_options_init(nxd_spawn_options_t* options, size_t size);

/** [local] Starts n processes with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set,
 *  so that nxd_context_create(NULL, ...) joins them.
 *
 *  The processes are ended when this process ends. A process so started must not spawn again.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (this process was itself started by a launcher);
 *          IO (the program cannot be executed; none is left running).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_spawn(const nxd_spawn_options_t* options, nxd_job_t** out_job);

/** [blocking] Waits until all processes have ended, and ends them when one has failed.
 *
 *  When one fails, the others have 3 seconds to report, get SIGTERM, and 2 seconds later SIGKILL.
 *  A call whose time ends before they do returns TIMEOUT, and the next goes on with that.
 *  @param timeout_ms  0 asks once; negative waits without bound.
 *  @return NXD_OK (all ended with 0); PEER_LOST (one failed, and all have ended: rank and exit
 *          code in the message); TIMEOUT (some still run).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_wait(nxd_job_t* job, int64_t timeout_ms);

/** [local] Sends a signal to every process still running.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_kill(nxd_job_t* job, int32_t signal_number);

/** [local] Number of processes of the job.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_get_size(nxd_job_t* job, int32_t* out_size);

/** [local] How a process ended.
 *
 *  @param[out] out_running    1 while it runs; the code is then 0.
 *  @param[out] out_exit_code  exit status, or 128 + signal number.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_get_exit_code(nxd_job_t* job, int32_t rank, int32_t* out_running,
                                           int32_t* out_exit_code);

/** [local] Process id of a rank.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_get_pid(nxd_job_t* job, int32_t rank, int64_t* out_pid);

/** [blocking] Ends what still runs, and releases the job.
 *  @since 0.1 */
NXD_API void nxd_job_destroy(nxd_job_t* job);

#ifdef __cplusplus
}
#endif

#endif /* NXD_JOB_H */
