/** @file
 * Contexts: one rank's place in the world, its settings and its end. */
#ifndef NXD_CONTEXT_H
#define NXD_CONTEXT_H

#include "store.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One rank: its identity, its groups and its failure state. Normally one per process; several on
 *  several threads of one process work too. */
typedef struct nxd_context nxd_context_t;

/** An ordered set of ranks that communicate. */
typedef struct nxd_group nxd_group_t;

/** The source of a context's rank, and of the addresses of its peers. */
typedef int32_t nxd_rendezvous_t;
enum {
  NXD_RENDEZVOUS_INVALID = -1,
  /** The variables that torchrun, nxdrun, mpirun (MPICH's or Open MPI's) or srun set; see
   *  docs/launchers.md. Without a launcher a world of one rank. */
  NXD_RENDEZVOUS_ENVIRONMENT = 0,
  /** rank, size and store of the options. */
  NXD_RENDEZVOUS_STORE = 1
};

/** The means that carries the data of a group. */
typedef int32_t nxd_transport_t;
enum {
  NXD_TRANSPORT_INVALID = -1,
  /** By topology: shared memory between ranks of one host; hierarchical when ranks are on several
   *  hosts, and on one of them there are several; Gloo otherwise. */
  NXD_TRANSPORT_AUTO = 0,
  NXD_TRANSPORT_GLOO = 1,          /**< TCP between all ranks */
  NXD_TRANSPORT_SHARED_MEMORY = 2, /**< groups that span hosts are rejected */
  NXD_TRANSPORT_HIERARCHICAL = 3   /**< shared memory within hosts, Gloo between them */
};

/** Asked every few tens of milliseconds while a call blocks, on the calling thread. Any status but
 *  NXD_OK ends the call, which returns that status unchanged. If the call is a collective or a
 *  message, its group is poisoned. Peers that wait for this rank then get PEER_LOST, as they do
 *  when nxd_context_create is ended. nxd_work_wait leaves the work as it is, and so does the wait
 *  for works of nxd_context_finalize.
 *
 *  The callback may make calls. INVALID_STATE: those on the group of the call that it is asked in,
 *  nxd_context_finalize and nxd_destroy_model_parallel. A destroy of this group or of the context
 *  logs an error, and leaves it as it is. */
typedef nxd_status_t (*nxd_interrupt_fn)(void* user_data);

/** Options of nxd_context_create. */
typedef struct nxd_context_options {
  size_t struct_size;
  nxd_rendezvous_t rendezvous;
  int32_t rank;               /**< with RENDEZVOUS_STORE: 0..size-1 */
  int32_t size;               /**< with RENDEZVOUS_STORE: ranks in the world, at least 1 */
  int32_t local_rank;         /**< rank on this host; with RENDEZVOUS_STORE; else the launcher's */
  nxd_store_t* store;         /**< with RENDEZVOUS_STORE: required when size > 1; kept alive */
  int64_t timeout_ms;         /**< bound of every collective; 0: NXD_TIMEOUT_MS or 1800000 */
  const char* interface_name; /**< network interface or address; NULL: NXD_SOCKET_IFNAME, or
                                 loopback when all ranks share one host */
  uint64_t seed;              /**< of initial weights and random bits, the same on ranks that share
                                 tensors; 0: NXD_SEED or 0 */
  nxd_toggle_t plain_kernels; /**< every layer through plain ATen operators; default:
                                 NXD_PLAIN_KERNELS or off */
  nxd_transport_t transport;  /**< of all groups, the same on all ranks; AUTO: NXD_TRANSPORT or by
                                 topology */
  const char* host_id;        /**< ranks that give the same name share memory; NULL: NXD_HOST_ID, or
                                 found out */
  nxd_interrupt_fn interrupt; /**< NULL: a blocked call ends by itself or by the timeout */
  void* interrupt_data;       /**< must outlive the context */
} nxd_context_options_t;

#define NXD_CONTEXT_OPTIONS_INIT                                                             \
  {                                                                                          \
    sizeof(nxd_context_options_t), NXD_RENDEZVOUS_ENVIRONMENT, 0, 0, 0, NULL, 0, NULL, 0, 0, \
        NXD_TRANSPORT_AUTO, NULL, NULL, NULL                                                 \
  }

/** [local] Fills options with defaults.
 *  @param size  sizeof(nxd_context_options_t) as the caller's header has it.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_options_init(nxd_context_options_t* options, size_t size);

/** [collective: world] Joins the world, and waits until all ranks have joined.
 *
 *  @param options      NULL: from the environment. A struct_size that is none tells no peer.
 *  @param[out] out_ctx the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (rank, size, address, or ranks that disagree); TIMEOUT (a rank
 *          did not come, its number is in the message); PEER_LOST (a rank gave up, or was given bad
 *          arguments); UNSUPPORTED (ranks of several hosts over SHARED_MEMORY); IO; CORRUPT
 *          (another program wrote to the store); the interrupt callback's.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_create(const nxd_context_options_t* options,
                                        nxd_context_t** out_ctx);

/** [collective: world] Leaves together with all ranks: waits for this rank's works and for the
 *  other ranks, then disconnects.
 *
 *  Afterwards calls that other ranks take part in are INVALID_STATE. Getters, settings, memory and
 *  destroy still work.
 *  @return NXD_OK; INVALID_STATE (finalized, forked, in a callback); TIMEOUT; PEER_LOST; ABORTED;
 *          the interrupt callback's, after which it may be called again if it waited for works.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_finalize(nxd_context_t* ctx);

/** [local] Leaves now; peers that wait for this rank get PEER_LOST.
 *
 *  Works still pending on its groups end with ABORTED first; their buffers are then the caller's.
 *  @since 0.1 */
NXD_API void nxd_context_destroy(nxd_context_t* ctx);

/** [local] Makes every pending and later collective of this context return ABORTED; idempotent,
 *  from any thread.
 *
 *  A pending call may return before this one does. Its thread may destroy the context at once:
 *  destroy waits for this call.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_abort(nxd_context_t* ctx);

/** [local] The last 64 collectives and 64 messages of each living group as one line of JSON: what
 *  each was called with, when it started, how long it took or has been waiting, and for whom.
 *
 *  It tells what every rank was doing when a job hangs. Any thread may call it, also while calls
 *  block on other threads. With NXD_FLIGHT_RECORD set, a group that fails adds its part to a file
 *  by itself.
 *
 *  @param buf  room for cap bytes; may be NULL when cap is 0.
 *  @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
 *                          cap other than 0 is INVALID_ARGUMENT. The record may have grown by the
 *                          next call: leave some room.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (after fork).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_flight_record(nxd_context_t* ctx, char* buf, size_t cap,
                                                   size_t* out_needed);

/** [local] Rank of this context in the world.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_rank(nxd_context_t* ctx, int32_t* out_rank);

/** [local] Number of ranks in the world.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_size(nxd_context_t* ctx, int32_t* out_size);

/** [local] Rank among the ranks of this host.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_local_rank(nxd_context_t* ctx, int32_t* out_rank);

/** [local] Group of all ranks; borrowed from the context.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_world_group(nxd_context_t* ctx, nxd_group_t** out_group);

/** [local] Switches every layer made from this context between fused kernels (0) and plain ATen
 *  operators (1).
 *
 *  All ranks should agree. In f64 products alone have kernels: all else takes the plain path.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_set_plain_kernels(nxd_context_t* ctx, int32_t plain);

/** [local] Tells whether layers run through plain ATen operators.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_plain_kernels(nxd_context_t* ctx, int32_t* out_plain);

/** [local] Sets the training step and microbatch that random bits are drawn for; both start at 0.
 *
 *  All ranks of a model set the same values. nxd_pp_run_train advances the microbatch by those of
 *  its run. nxd_optimizer_step advances the step by one and sets the microbatch to 0. Random bits
 *  are there for steps below 2^40 and microbatches below 2^24: calls that draw some reject others.
 *  @return NXD_OK; INVALID_ARGUMENT (negative, or a step beyond 2^62).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_set_step(nxd_context_t* ctx, int64_t step, int64_t microbatch);

/** [local] The training step and microbatch that random bits are drawn for.
 *  @param[out] out_microbatch  may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_step(nxd_context_t* ctx, int64_t* out_step,
                                          int64_t* out_microbatch);

/** [local] Writes text and a newline to stdout on world rank 0; does nothing elsewhere.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_master_print(nxd_context_t* ctx, const char* text);

#ifdef __cplusplus
}
#endif

#endif /* NXD_CONTEXT_H */
