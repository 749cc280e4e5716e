/* libnxd: distributed training as an embeddable library.
 *
 * How to read this header
 *
 * Every function that can fail returns nxd_status_t: 0 is success, every error is negative, and
 * nxd_last_error() then says on the same thread what was expected and what was given. Outputs are
 * the last arguments, named out_*; they are set to NULL or 0 on entry and stay so when a call
 * fails.
 *
 * The first line of each comment carries one tag. [local] means that no other rank needs to call.
 * [collective: G] means that every rank of group G calls the same function, in the same order as
 * its other collectives; such a call is bounded by the group's timeout. [local, blocking: ...]
 * waits for what it names. Finalizers of garbage-collected languages may only call [local]
 * functions.
 *
 * Ownership: *_create gives the caller an object that the caller destroys. *_get_* gives a borrowed
 * pointer, valid until its owner is destroyed or changed. Strings are UTF-8 and copied. Nothing is
 * ever handed out for the caller to free(). Destroying NULL does nothing; objects keep alive what
 * they use, so local objects may be destroyed in any order.
 *
 * Threads: different objects may be used concurrently; one object by one thread at a time. Objects
 * that share storage, a module or an autograd graph count as one object. nxd_context_abort,
 * nxd_group_abort, nxd_work_test and nxd_context_get_flight_record are safe from any thread. After
 * fork() every object is unusable in the child: calls return NXD_ERROR_INVALID_STATE.
 *
 * Options structs start with struct_size; NULL options mean all defaults, and a field that is zero
 * means its default. Initialise with nxd_*_options_init or the NXD_*_OPTIONS_INIT macro.
 *
 * Sections 1 to 8 are in libnxd_core (pkg-config nxd-core) and need no libtorch; sections 9 and up
 * are in libnxd (pkg-config nxd), which includes libnxd_core. */
#ifndef NXD_H
#define NXD_H

#include <stddef.h>
#include <stdint.h>

#include "nxd/dlpack.h"

/* Copies of dlpack.h before 1.0 do not know it, and a program may have included one first. */
struct DLManagedTensorVersioned;

#if defined(_WIN32) || defined(SWIG)
#define NXD_API
#else
#define NXD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * 1. Basics: versions, errors, logging
 * ------------------------------------------------------------------------------------------- */

#define NXD_ABI_VERSION 0
#define NXD_VERSION_MAJOR 0
#define NXD_VERSION_MINOR 1
#define NXD_VERSION_PATCH 0

/** Outcome of a call. Values never change their meaning. */
typedef int32_t nxd_status_t;
enum {
  NXD_OK = 0,
  NXD_ERROR_INVALID_ARGUMENT = -1, /**< NULL, shape, dtype, size, range, or ranks that disagree */
  NXD_ERROR_INVALID_STATE = -2,    /**< wrong order of calls, after fork, after finalize */
  NXD_ERROR_UNSUPPORTED = -3,      /**< valid, but not on this device, build or layout */
  NXD_ERROR_OUT_OF_MEMORY = -4,
  NXD_ERROR_TIMEOUT = -5,       /**< a peer did not answer in time; the group is poisoned */
  NXD_ERROR_PEER_LOST = -6,     /**< a peer died or left; the context's groups are poisoned */
  NXD_ERROR_ABORTED = -7,       /**< nxd_group_abort or nxd_context_abort was called */
  NXD_ERROR_IO = -8,            /**< file or network, not a peer of the group */
  NXD_ERROR_CORRUPT = -9,       /**< a file's content contradicts itself or its checksum */
  NXD_ERROR_INTERNAL = -10,     /**< a defect of the library: please report it */
  NXD_ERROR_ABI_MISMATCH = -11, /**< a struct from a header this library does not know */
  NXD_ERROR_USER = -12          /**< a callback's own failure; passed through unchanged */
};

/** Element types. */
typedef int32_t nxd_dtype_t;
enum {
  NXD_DTYPE_INVALID = -1,
  NXD_DTYPE_F32 = 0,
  NXD_DTYPE_F64 = 1,
  NXD_DTYPE_BF16 = 2,
  NXD_DTYPE_F16 = 3,
  NXD_DTYPE_I32 = 4,
  NXD_DTYPE_I64 = 5,
  NXD_DTYPE_U8 = 6,
  NXD_DTYPE_I8 = 7,
  NXD_DTYPE_I16 = 8,
  NXD_DTYPE_BOOL = 9
};

/** ABI number of the loaded library: bindings compare it with NXD_ABI_VERSION first.  [local]
 *  @since 0.1 */
NXD_API uint32_t nxd_abi_version(void);

/** Release of the loaded library, such as "0.1.0"; static storage.  [local]
 *  @since 0.1 */
NXD_API const char* nxd_version(void);

/** Name of a status code, such as "INVALID_ARGUMENT"; "UNKNOWN" for other values.  [local]
 *  @since 0.1 */
NXD_API const char* nxd_status_string(nxd_status_t status);

/** Message of this thread's last failed call; "" when none failed yet, never NULL.  [local]
 *
 *  Borrowed: valid until the next nxd call on this thread. A successful call leaves it as it is.
 *  @since 0.1 */
NXD_API const char* nxd_last_error(void);

/** Copies this thread's last error message into buf, cut to cap - 1 bytes and terminated.  [local]
 *
 *  @param buf  may be NULL when cap is 0.
 *  @return bytes needed for the whole message and its terminator.
 *  @since 0.1 */
NXD_API size_t nxd_last_error_copy(char* buf, size_t cap);

/** Which step this rank's parameters belong to after an optimizer's step. */
typedef int32_t nxd_parameter_state_t;
enum {
  NXD_PARAMETERS_INVALID = -1,
  NXD_PARAMETERS_NONE = 0, /**< no step was concerned */
  NXD_PARAMETERS_OLD = 1,  /**< all are as before the step */
  NXD_PARAMETERS_NEW = 2,  /**< all are as after it */
  NXD_PARAMETERS_TORN = 3  /**< some of each: of no use until they are loaded again */
};

/** What a failed distributed call was doing. Strings are borrowed like nxd_last_error. */
typedef struct nxd_error_info {
  size_t struct_size;
  nxd_status_t status;
  int32_t root_rank;     /**< world rank that was lost or disagreed; -1 when none is to blame */
  uint64_t sequence;     /**< number of the collective in its group, from 0 */
  const char* group;     /**< name of the group; "" when no group was involved */
  const char* operation; /**< such as "all_reduce"; "" when no collective was involved */
  int64_t step;          /**< of the training step whose end failed; -1 when none did */
  nxd_parameter_state_t parameters; /**< what that failure has left of this rank's parameters */
  int32_t reserved;
} nxd_error_info_t;

/** Structured form of this thread's last error.  [local]
 *
 *  @param[in,out] out_info  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_last_error_info(nxd_error_info_t* out_info);

/** Destroys what a Python capsule of a DLPack tensor holds, unless a consumer took it over: give
 * this function's address to PyCapsule_New.  [local]
 *
 *  A destructor in C, since one that runs Python would disturb the error that a consumer has just
 *  raised when it refused the tensor. Does nothing in a process without a Python interpreter.
 *  @param capsule  a PyObject, named "dltensor" or "dltensor_versioned" until it is consumed.
 *  @since 0.1 */
NXD_API void nxd_python_capsule_destroy(void* capsule);

/** Severity of log lines; lines below the process-wide level are dropped. */
typedef int32_t nxd_log_level_t;
enum {
  NXD_LOG_INVALID = -1,
  NXD_LOG_DEBUG = 0,
  NXD_LOG_INFO = 1,
  NXD_LOG_WARN = 2,
  NXD_LOG_ERROR = 3,
  NXD_LOG_OFF = 4
};

/** Receives log lines, without a newline. Called only on a thread that is inside an nxd call. */
typedef void (*nxd_log_fn)(nxd_log_level_t level, const char* message, void* user_data);

/** Releases a callback's user_data; called exactly once. */
typedef void (*nxd_destroy_fn)(void* user_data);

/** Replaces the process-wide log callback; NULL restores the default, lines on stderr.  [local]
 *
 *  @param user_data  kept until the callback is replaced; then destroy(user_data) is called if
 *                    destroy is not NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_log_callback(nxd_log_fn callback, void* user_data,
                                          nxd_destroy_fn destroy);

/** Sets the process-wide log level; the default is NXD_LOG_LEVEL or WARN.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (level).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_log_level(nxd_log_level_t level);

/** Versions of the library, its compiler, libtorch, Gloo and oneDNN as a JSON object.  [local]
 *
 *  Static storage.
 *  @since 0.1 */
NXD_API const char* nxd_build_info(void);

/** Every environment variable the library reads, one per line: name, default, meaning.  [local]
 *
 *  Static storage.
 *  @since 0.1 */
NXD_API const char* nxd_environment_table(void);

/* ---------------------------------------------------------------------------------------------
 * 2. Stores and contexts
 * ------------------------------------------------------------------------------------------- */

/** Key-value store through which ranks find one another. */
typedef struct nxd_store nxd_store_t;

/** One rank: its identity, its groups and its failure state. Normally one per process; several on
 *  several threads of one process work too. */
typedef struct nxd_context nxd_context_t;

/** An ordered set of ranks that communicate. */
typedef struct nxd_group nxd_group_t;

/** Store of the ranks that live on threads of this process.  [local]
 *
 *  @param[out] out_store  shared by the threads; the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_local(nxd_store_t** out_store);

/** Store in a file that all ranks of this host or shared file system can write.  [local]
 *
 *  @param path  created when absent, and left in place by destroy. The path must be fresh for each
 *               job: keys of an earlier job are refused by nxd_context_create.
 *  @return NXD_OK; INVALID_ARGUMENT; IO (cannot create or lock the file).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_file(const char* path, nxd_store_t** out_store);

/** Store served over TCP by one rank; speaks the protocol of torch's TCPStore.  [local, blocking:
 *  until the server answers or timeout_ms has passed]
 *
 *  With NXD_SECRET or NXD_SECRET_FILE both ends prove that they have the same secret; see
 *  docs/security.md.
 *
 *  @param host        name or address of the server, which listens there alone.
 *  @param port        1..65535; for the server 0 picks a free port, see nxd_store_get_port.
 *  @param is_server   1: serve in this process and connect to it; 0: connect.
 *  @param timeout_ms  0: 300000. Also bounds each later get and wait.
 *  @return NXD_OK; INVALID_ARGUMENT; IO (port in use, name not found, no store or
 *          one with another secret at the port); TIMEOUT (no server).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_tcp(const char* host, int32_t port, int32_t is_server,
                                          int64_t timeout_ms, nxd_store_t** out_store);

/** A store of the caller's own. Each callback returns NXD_OK or an error, which passes through.
 *  They are called from the thread that is inside the nxd call. What asynchronous work asks of the
 *  store is asked by threads that are inside nxd_work_wait, nxd_work_test or another call that
 *  waits or uses the store. */
typedef struct nxd_store_callbacks {
  size_t struct_size;
  void* user_data;
  nxd_destroy_fn destroy; /**< may be NULL */
  /** Stores a copy of the value under the key, replacing an earlier one. */
  nxd_status_t (*set)(const char* key, const uint8_t* value, size_t size, void* user_data);
  /** Copies the value into buf when cap suffices and sets *out_size to its size in any case;
   *  *out_found is 0 when the key is absent. Does not wait. */
  nxd_status_t (*get)(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                      int32_t* out_found, void* user_data);
  /** Adds to an integer that starts at 0, atomically, and gives the new value. */
  nxd_status_t (*add)(const char* key, int64_t amount, int64_t* out_value, void* user_data);
} nxd_store_callbacks_t;

/** Store over the caller's callbacks, which are copied; set, get and add are required.  [local]
 *
 *  On failure destroy is not called: user_data stays the caller's.
 *  @return NXD_OK; INVALID_ARGUMENT (a callback is NULL); ABI_MISMATCH.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_callbacks(const nxd_store_callbacks_t* callbacks,
                                                nxd_store_t** out_store);

/** Port the store's server listens on, for stores made by nxd_store_create_tcp.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (not a TCP store).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_get_port(nxd_store_t* store, int32_t* out_port);

/** Stores a copy of the value under the key.  [local]
 *  @param value  size bytes, at most 1 GiB, and 64 MiB over TCP; may be NULL when size is 0.
 *  @return NXD_OK; INVALID_ARGUMENT; IO, TIMEOUT (the store is lost or silent).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_set(nxd_store_t* store, const char* key, const void* value,
                                   size_t size);

/** Waits for the key and copies its value.  [local, blocking: until the key is set]
 *
 *  @param timeout_ms   0 asks once and does not wait.
 *  @param[out] out_size  bytes of the value, also when cap is too small.
 *  @return NXD_OK; INVALID_ARGUMENT (cap too small: nothing is copied); TIMEOUT (key absent).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_get(nxd_store_t* store, const char* key, int64_t timeout_ms,
                                   void* buf, size_t cap, size_t* out_size);

/** Adds to an integer key that starts at 0, atomically. Sums wrap.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (the value is no integer; a server of torch's loses the
 *          connection instead); IO, TIMEOUT (the store is lost or silent).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_add(nxd_store_t* store, const char* key, int64_t amount,
                                   int64_t* out_value);

/** Releases the store; contexts made from it keep what they need.  [local]
 *  @since 0.1 */
NXD_API void nxd_store_destroy(nxd_store_t* store);

/** Where a context learns its rank and meets its peers. */
typedef int32_t nxd_rendezvous_t;
enum {
  NXD_RENDEZVOUS_INVALID = -1,
  /** The variables that torchrun, nxdrun, mpirun (MPICH's or Open MPI's) or srun set; see
   *  docs/launchers.md. Without a launcher a world of one rank. */
  NXD_RENDEZVOUS_ENVIRONMENT = 0,
  /** rank, size and store of the options. */
  NXD_RENDEZVOUS_STORE = 1
};

/** What carries the data of a group. */
typedef int32_t nxd_transport_t;
enum {
  NXD_TRANSPORT_INVALID = -1,
  /** By topology: shared memory between ranks of one host; hierarchical when several hosts have
   *  several ranks each; Gloo otherwise. */
  NXD_TRANSPORT_AUTO = 0,
  NXD_TRANSPORT_GLOO = 1,          /**< TCP between all ranks */
  NXD_TRANSPORT_SHARED_MEMORY = 2, /**< groups that span hosts are refused */
  NXD_TRANSPORT_HIERARCHICAL = 3   /**< shared memory within hosts, Gloo between them */
};

/** Asked every few tens of milliseconds while a call blocks, on the calling thread. Anything but
 *  NXD_OK ends the call, which returns that status unchanged. A collective or a message so ended
 *  poisons its group, and peers that wait for this rank get PEER_LOST, as they do when
 *  nxd_context_create is ended; nxd_work_wait leaves the work as it is. */
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
  uint64_t seed;              /**< of initial weights and random bits; 0: NXD_SEED or 0 */
  int32_t plain_kernels; /**< 1: every layer through plain ATen operators; 0: NXD_PLAIN_KERNELS or
                            off */
  nxd_transport_t transport;  /**< of all groups; AUTO: NXD_TRANSPORT or by topology */
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

/** Fills options with defaults.  [local]
 *  @param size  sizeof(nxd_context_options_t) as the caller's header has it.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_options_init(nxd_context_options_t* options, size_t size);

/** Joins the world: every rank meets every other.  [collective: world]
 *
 *  @param options      NULL: from the environment.
 *  @param[out] out_ctx the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (rank, size, address); TIMEOUT (a rank did not come, its number
 *          is in the message); IO.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_create(const nxd_context_options_t* options,
                                        nxd_context_t** out_ctx);

/** Leaves in agreement: waits for this rank's works and for all ranks, then disconnects.
 *  [collective: world]
 *
 *  Afterwards only getters and destroy work on the context.
 *  @return NXD_OK; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_finalize(nxd_context_t* ctx);

/** Leaves now; peers that wait for this rank get PEER_LOST.  [local]
 *
 *  Works still pending on its groups end with ABORTED first; their buffers are then the caller's.
 *  @since 0.1 */
NXD_API void nxd_context_destroy(nxd_context_t* ctx);

/** Makes every pending and later collective of this context return ABORTED; idempotent, from any
 *  thread.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_abort(nxd_context_t* ctx);

/** The last 64 collectives and 64 messages of each living group as one line of JSON: what each was
 *  called with, when it started, how long it took or has been waiting, and for whom.  [local]
 *
 *  For the question what every rank was doing when nothing moves any more. May be asked from any
 *  thread, also while calls block on others. With NXD_FLIGHT_RECORD set, a group that fails adds
 *  its part to a file by itself.
 *
 *  @param buf  room for cap bytes; may be NULL when cap is 0.
 *  @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
 *                          cap other than 0 is INVALID_ARGUMENT. The record may have grown by the
 *                          next call: leave some room.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (after fork).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_flight_record(nxd_context_t* ctx, char* buf, size_t cap,
                                                   size_t* out_needed);

/** Rank of this context in the world.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_rank(nxd_context_t* ctx, int32_t* out_rank);

/** Number of ranks in the world.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_size(nxd_context_t* ctx, int32_t* out_size);

/** Rank among the ranks of this host.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_local_rank(nxd_context_t* ctx, int32_t* out_rank);

/** Group of all ranks; borrowed from the context.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_world_group(nxd_context_t* ctx, nxd_group_t** out_group);

/** Switches every layer made from this context between fused kernels (0) and plain ATen operators
 *  (1).  [local]
 *
 *  All ranks should agree. f64 always takes the plain path.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_set_plain_kernels(nxd_context_t* ctx, int32_t plain);

/** Whether layers run through plain ATen operators.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_plain_kernels(nxd_context_t* ctx, int32_t* out_plain);

/** Sets the training step and microbatch that random bits are drawn for; both start at 0.  [local]
 *
 *  All ranks of a model set the same values. nxd_optimizer_step advances the step by one and sets
 *  the microbatch to 0.
 *  @return NXD_OK; INVALID_ARGUMENT (negative).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_set_step(nxd_context_t* ctx, int64_t step, int64_t microbatch);

/** The training step and microbatch that random bits are drawn for.  [local]
 *  @param[out] out_microbatch  may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_get_step(nxd_context_t* ctx, int64_t* out_step,
                                          int64_t* out_microbatch);

/** 1 when NXD_CPU_MODE asks for eager execution on the CPU.  [local]
 *  @since 0.1 */
NXD_API int32_t nxd_cpu_mode(void);

/** Kind of a device. */
typedef int32_t nxd_device_t;
enum { NXD_DEVICE_INVALID = -1, NXD_DEVICE_CPU = 0, NXD_DEVICE_NEURON = 1, NXD_DEVICE_META = 2 };

/** Device this process trains on: the CPU with NXD_CPU_MODE=1, else a Neuron device.  [local]
 *
 *  @return NXD_OK; UNSUPPORTED when NXD_CPU_MODE is not 1 and no Neuron plug-in is found; the
 *          message lists what was looked for.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_get_device(nxd_device_t* out_device);

/** Writes text and a newline to stdout on world rank 0; does nothing elsewhere.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_master_print(nxd_context_t* ctx, const char* text);

/* ---------------------------------------------------------------------------------------------
 * 3. Parallel state: which ranks share tensors, stages and data
 * ------------------------------------------------------------------------------------------- */

/** Axes of the rank layout. */
typedef int32_t nxd_axis_t;
enum {
  NXD_AXIS_INVALID = -1,
  NXD_AXIS_WORLD = 0,
  NXD_AXIS_TENSOR = 1,
  NXD_AXIS_PIPELINE = 2,
  NXD_AXIS_DATA = 3,
  NXD_AXIS_CONTEXT = 4,
  NXD_AXIS_EXPERT_MODEL = 5,
  NXD_AXIS_EXPERT_DATA = 6
};

/** Hardware whose rank order to follow. */
typedef int32_t nxd_platform_t;
enum {
  NXD_PLATFORM_INVALID = -1,
  NXD_PLATFORM_NEUTRAL = 0, /**< tensor-parallel ranks adjacent, then context, data, pipeline */
  NXD_PLATFORM_TRN1 = 1,    /**< as neutral, but tensor groups of 4 are strided within a host */
  NXD_PLATFORM_TRN2 = 2 /**< as neutral, but tensor groups of 64 (32 with lnc_size 2) are rings */
};

/** A layout of ranks. Sizes are refused, never clamped: tensor x pipeline x context, and tensor x
 *  pipeline x expert, must divide the world. Context- and expert-parallel groups are for a caller's
 *  own use: nothing is reduced over them, so with a size above 1 layers, models, their training,
 *  pipelines, and ddps over buffers without a group of their own are UNSUPPORTED. */
typedef struct nxd_parallel_options {
  size_t struct_size;
  int32_t tensor_parallel_size;   /**< 0: 1 */
  int32_t pipeline_parallel_size; /**< 0: 1 */
  int32_t context_parallel_size;  /**< 0: 1 */
  int32_t expert_parallel_size;   /**< 0: 1 */
  nxd_platform_t platform;
  int32_t lnc_size;         /**< logical core configuration, 1 or 2; 0: 1 */
  int32_t local_world_size; /**< ranks per host, for TRN1 and TRN2; 0: the whole world */
  int32_t reserved;
} nxd_parallel_options_t;

#define NXD_PARALLEL_OPTIONS_INIT \
  { sizeof(nxd_parallel_options_t), 1, 1, 1, 1, NXD_PLATFORM_NEUTRAL, 1, 0, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_options_init(nxd_parallel_options_t* options, size_t size);

/** Number of groups along an axis of a layout; no context needed.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (sizes that do not divide); UNSUPPORTED (platform and layout).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layout_get_group_count(const nxd_parallel_options_t* options,
                                                int32_t world_size, nxd_axis_t axis,
                                                int32_t* out_count);

/** Ranks of one group of a layout, in group order; no context needed.  [local]
 *
 *  @param index   0..count-1, in the order of the lists NxD Core prints.
 *  @param ranks   room for cap ranks; may be NULL when cap is 0.
 *  @param[out] out_size  ranks in the group. When it exceeds cap nothing is copied, and a cap
 *                        other than 0 is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layout_get_group(const nxd_parallel_options_t* options, int32_t world_size,
                                          nxd_axis_t axis, int32_t index, int32_t* ranks,
                                          size_t cap, size_t* out_size);

/** Group that a rank belongs to, and its place in it; no context needed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layout_find_rank(const nxd_parallel_options_t* options, int32_t world_size,
                                          nxd_axis_t axis, int32_t rank, int32_t* out_group_index,
                                          int32_t* out_rank_in_group);

/** Lays out the context's world and makes its groups.  [collective: world]
 *
 *  @param options  NULL: one tensor- and pipeline-parallel rank, all others data parallel.
 *  @return NXD_OK; INVALID_ARGUMENT (sizes, or ranks that disagree about them); INVALID_STATE
 *          (initialised already); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_init_model_parallel(nxd_context_t* ctx,
                                             const nxd_parallel_options_t* options);

/** Forgets the layout, so that nxd_init_model_parallel may be called again.  [local]
 *
 *  Modules made under the old layout keep their groups.
 *  @return NXD_OK; INVALID_STATE (not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_destroy_model_parallel(nxd_context_t* ctx);

/** 1 between nxd_init_model_parallel and nxd_destroy_model_parallel; 0 for NULL.  [local]
 *  @since 0.1 */
NXD_API int32_t nxd_model_parallel_is_initialized(nxd_context_t* ctx);

/** Ranks in this rank's group along an axis.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (axis); INVALID_STATE (not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_size(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_size);

/** This rank's place in its group along an axis.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank);

/** World rank of the first member of this rank's group along an axis.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_source_rank(nxd_context_t* ctx, nxd_axis_t axis,
                                                  int32_t* out_rank);

/** This rank's group along an axis; borrowed from the context until the layout is destroyed.
 *  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_group(nxd_context_t* ctx, nxd_axis_t axis,
                                            nxd_group_t** out_group);

/** All groups along an axis: their number, and the ranks of one by index.  [local]
 *
 *  @param index  0..count-1; the ranks come as from nxd_layout_get_group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_get_group_list(nxd_context_t* ctx, nxd_axis_t axis, int32_t index,
                                                 int32_t* ranks, size_t cap, size_t* out_size,
                                                 int32_t* out_count);

/** World rank of the next pipeline stage; the last stage's next is the first.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pipeline_get_next_rank(nxd_context_t* ctx, int32_t* out_rank);

/** World rank of the previous pipeline stage; the first stage's previous is the last.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pipeline_get_previous_rank(nxd_context_t* ctx, int32_t* out_rank);

/* ---------------------------------------------------------------------------------------------
 * 4. Collectives over buffers the caller owns
 *
 * Before any data moves, the ranks of a group compare operation, dtype, count, root, reduction and
 * sequence number. Where they differ, every rank gets INVALID_ARGUMENT naming both sides, no buffer
 * is changed and the group stays usable. A rank whose own arguments are bad gets INVALID_ARGUMENT
 * and so do its peers. After TIMEOUT or PEER_LOST the group is poisoned: every later call returns
 * that first error.
 *
 * Sums are added in an order that the group's ranks and hosts alone decide, 16-bit floats in f32
 * and rounded once; so results are the same on all ranks and from run to run. The order is that of
 * the ranks or, over a hierarchical transport, of the ranks of each host and then of the hosts.
 * Over Gloo, NXD_LARGE_GROUP (33) or more ranks, or hosts, are added as a balanced binary tree over
 * them.
 * ------------------------------------------------------------------------------------------- */

/** Reductions. */
typedef int32_t nxd_reduce_t;
enum {
  NXD_REDUCE_INVALID = -1,
  NXD_REDUCE_SUM = 0,
  NXD_REDUCE_AVG = 1, /**< sum divided by the group's size; floats only */
  NXD_REDUCE_MAX = 2, /**< NaN wins */
  NXD_REDUCE_MIN = 3, /**< NaN wins */
  NXD_REDUCE_PROD = 4
};

/** Makes a group of some of the world's ranks.  [collective: the listed ranks]
 *
 *  @param ranks  world ranks in group order, each once, this rank among them; the same list in the
 *                same order on every member. Members make groups in the same order.
 *  @param name   part of messages; NULL: "group".
 *  @param[out] out_group  the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_create(nxd_context_t* ctx, const int32_t* ranks, size_t n_ranks,
                                      const char* name, nxd_group_t** out_group);

/** Releases a group made by nxd_group_create; borrowed groups are left alone.  [local]
 *
 *  Works still pending on it end with ABORTED first, and so do later calls of modules that use the
 *  group; the works' buffers are then the caller's.
 *  @since 0.1 */
NXD_API void nxd_group_destroy(nxd_group_t* group);

/** Makes every pending and later call on the group return ABORTED; idempotent, from any thread.
 *  [local]
 *
 *  Peers that wait for this rank get PEER_LOST or TIMEOUT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_abort(nxd_group_t* group);

/** Ranks in the group.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_size(nxd_group_t* group, int32_t* out_size);

/** This rank's place in the group.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_rank(nxd_group_t* group, int32_t* out_rank);

/** World ranks of the group, as from nxd_layout_get_group.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_ranks(nxd_group_t* group, int32_t* ranks, size_t cap,
                                         size_t* out_size);

/** Bound of every later call on the group, in milliseconds; all ranks should agree.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (not positive).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_set_timeout(nxd_group_t* group, int64_t timeout_ms);

/** What carries the group's data; for a group of one, SHARED_MEMORY.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_transport(nxd_group_t* group, nxd_transport_t* out_transport);

/** Memory that the other ranks of this host can read and write too.  [local]
 *
 *  Collectives over shared memory work on such buffers in place, which takes a third of the time or
 *  less; any other buffer works as well. Contents are undefined at first.
 *  @param size       bytes; 0 is allowed.
 *  @param[out] out_data  aligned to 64 bytes. Valid until nxd_arena_free, or until the context and
 *                    all that was made from it are destroyed.
 *  @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; IO (the system has no shared memory).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_arena_alloc(nxd_context_t* ctx, size_t size, void** out_data);

/** Takes back memory of nxd_arena_alloc for later calls of it; no call may be using it.  [local]
 *  @param data  NULL does nothing.
 *  @return NXD_OK; INVALID_ARGUMENT (not from this context's nxd_arena_alloc).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_arena_free(nxd_context_t* ctx, void* data);

/** Reduces count elements of every rank and leaves the result on every rank.  [collective: group]
 *
 *  @param send   count elements; may equal recv, must not overlap it otherwise.
 *  @param recv   count elements.
 *  @param count  0 is allowed; then buffers may be NULL.
 *  @param dtype  F32, F64, BF16, F16, I32 or I64.
 *  @return NXD_OK; INVALID_ARGUMENT (also when ranks disagree); TIMEOUT; PEER_LOST; ABORTED.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_reduce(nxd_group_t* group, const void* send, void* recv, size_t count,
                                    nxd_dtype_t dtype, nxd_reduce_t reduce);

/** Concatenates count elements of every rank, in rank order, on every rank.  [collective: group]
 *
 *  @param send   count elements; may be recv + rank * count elements.
 *  @param recv   size * count elements.
 *  @param dtype  any.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_gather(nxd_group_t* group, const void* send, void* recv, size_t count,
                                    nxd_dtype_t dtype);

/** Reduces size * count elements and leaves the rank-th part of the result.  [collective: group]
 *
 *  @param send   size * count elements.
 *  @param recv   count elements; may be send + rank * count elements.
 *  @param dtype  F32, F64, BF16, F16, I32 or I64.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_scatter(nxd_group_t* group, const void* send, void* recv,
                                        size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);

/** Copies count elements of one rank to all others.  [collective: group]
 *
 *  @param buffer  count elements; read on root, written elsewhere.
 *  @param root    rank in the group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_broadcast(nxd_group_t* group, void* buffer, size_t count,
                                   nxd_dtype_t dtype, int32_t root);

/** Sends the i-th part of send to rank i and receives its part for this rank.  [collective: group]
 *
 *  Every rank exchanges with every other, so between hosts each connects to all ranks of the group.
 *
 *  @param send  size * count elements; must not overlap recv.
 *  @param recv  size * count elements, the i-th part from rank i.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_to_all(nxd_group_t* group, const void* send, void* recv, size_t count,
                                    nxd_dtype_t dtype);

/** Sends count elements to one rank, which calls nxd_receive with the same tag.  [collective: the
 *  two ranks]
 *
 *  Several sends from one rank to another arrive in order per tag. Returns when the buffer may be
 *  reused.
 *  @param to   rank in the group, not this one.
 *  @param tag  0..65535.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_send(nxd_group_t* group, const void* buffer, size_t count,
                              nxd_dtype_t dtype, int32_t to, int32_t tag);

/** Receives count elements from one rank, which calls nxd_send with the same tag.  [collective: the
 *  two ranks]
 *
 *  @return NXD_OK; INVALID_ARGUMENT when the sender's count or dtype differ, on both sides.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_receive(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                                 int32_t from, int32_t tag);

/** Returns when every rank of the group has called.  [collective: group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_barrier(nxd_group_t* group);

/* Asynchronous forms. They take the arguments of the calls above, return at once, and give a work
 * to wait for. Until the work is done its buffers are borrowed: send buffers must not be written,
 * receive buffers not touched.
 *
 * Order: the collectives of a group happen in the order they were issued in, those that wait among
 * the asynchronous ones, and every rank issues them in the same order; a waiting and an
 * asynchronous call match. The messages of one peer, tag and direction keep their order too.
 * Nothing else waits for anything: messages of other peers, tags or direction, the works of other
 * groups, a group's messages against its collectives. So ranks may issue those in different orders.
 *
 * Errors: bad arguments, ranks that disagree and lost ranks are the work's own failure, which
 * nxd_work_wait returns; the call itself fails only for a NULL group or out_work, in a forked
 * child, or when there is no memory or thread for it. The group's timeout bounds each work from
 * when it begins. */

/** A call that goes on while its caller does other things. */
typedef struct nxd_work nxd_work_t;

/** nxd_all_reduce without waiting.  [collective: group]
 *
 *  @param send, recv     as for nxd_all_reduce; borrowed until the work is done.
 *  @param[out] out_work  the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL; the peers are told); OUT_OF_MEMORY; INVALID_STATE (after
 *          fork). All other failures are the work's. The same for all *_async functions.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_reduce_async(nxd_group_t* group, const void* send, void* recv,
                                          size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce,
                                          nxd_work_t** out_work);

/** nxd_all_gather without waiting.  [collective: group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_gather_async(nxd_group_t* group, const void* send, void* recv,
                                          size_t count, nxd_dtype_t dtype, nxd_work_t** out_work);

/** nxd_reduce_scatter without waiting.  [collective: group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_scatter_async(nxd_group_t* group, const void* send, void* recv,
                                              size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce,
                                              nxd_work_t** out_work);

/** nxd_broadcast without waiting.  [collective: group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_broadcast_async(nxd_group_t* group, void* buffer, size_t count,
                                         nxd_dtype_t dtype, int32_t root, nxd_work_t** out_work);

/** nxd_all_to_all without waiting.  [collective: group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_to_all_async(nxd_group_t* group, const void* send, void* recv,
                                          size_t count, nxd_dtype_t dtype, nxd_work_t** out_work);

/** nxd_send without waiting; the other rank may call nxd_receive or nxd_receive_async.
 *  [collective: the two ranks]
 *
 *  Each peer and tag with a work pending takes a thread.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_send_async(nxd_group_t* group, const void* buffer, size_t count,
                                    nxd_dtype_t dtype, int32_t to, int32_t tag,
                                    nxd_work_t** out_work);

/** nxd_receive without waiting; the other rank may call nxd_send or nxd_send_async.
 *  [collective: the two ranks]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_receive_async(nxd_group_t* group, void* buffer, size_t count,
                                       nxd_dtype_t dtype, int32_t from, int32_t tag,
                                       nxd_work_t** out_work);

/** nxd_barrier without waiting: the work is done when every rank of the group has called.
 *  [collective: group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_barrier_async(nxd_group_t* group, nxd_work_t** out_work);

/** Fails a call that this rank cannot make, on all ranks that make it.  [collective: group; of a
 *  message: the two ranks]
 *
 *  For a binding that finds an argument bad before it can name a pointer, a count or a dtype, such
 *  as an array of another framework. Takes the place of this rank's next collective of the group,
 *  or message: the peers, which make the call, get INVALID_ARGUMENT at once, with the reason, and
 *  the group stays usable. In place of nxd_ddp_create_buffers it is called on the group of that.
 *
 *  @param operation  name of the call as nxd_error_info_t has it, such as "all_reduce" or "send";
 *                    NULL and any other name: a collective without a name.
 *  @param peer, tag  of a message; not read otherwise.
 *  @param reason  for people; NULL: none is given. Peers may get its first 180 bytes alone.
 *  @return never NXD_OK: INVALID_ARGUMENT with the reason, or why the peers were not told.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_reject(nxd_group_t* group, const char* operation, int32_t peer,
                                      int32_t tag, const char* reason);

/** nxd_group_reject without waiting: the work takes the call's place in the order, and fails with
 *  the reason.  [collective: group; of a message: the two ranks]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_reject_async(nxd_group_t* group, const char* operation, int32_t peer,
                                            int32_t tag, const char* reason, nxd_work_t** out_work);

/** Whether the work is done, well or not; from any thread.  [local]
 *
 *  @param[out] out_done  1 when it is; nxd_work_wait then returns at once.
 *  @return NXD_OK, also for a work that failed; INVALID_ARGUMENT; INVALID_STATE (after fork).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_work_test(nxd_work_t* work, int32_t* out_done);

/** Waits until the work is done, and returns how it ended.  [local, blocking: until the work is
 *  done]
 *
 *  May be called again; the outcome stays.
 *
 *  @param timeout_ms  0 asks once; negative waits until the work is done, which the group's timeout
 *                     bounds.
 *  @return what the call without _async would have returned; ABORTED for a cancelled work, or when
 *          the group was aborted or destroyed; TIMEOUT when timeout_ms has passed, or the interrupt
 *          callback's status: then the work goes on, and the group is unharmed. nxd_work_test tells
 *          this TIMEOUT from that of a work that failed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_work_wait(nxd_work_t* work, int64_t timeout_ms);

/** Takes back a work that has not begun on this rank: it is done, with ABORTED.  [local]
 *
 *  Its place in the order is kept: when its turn comes the peers get INVALID_ARGUMENT, naming this
 *  rank, and the group goes on. To end a work that has begun there is nxd_group_abort.
 *  @return NXD_OK; INVALID_STATE (it has begun or ended).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_work_cancel(nxd_work_t* work);

/** How the work ended, as nxd_last_error_info.  [local]
 *
 *  @param[in,out] out_info  struct_size set by the caller; the rest is filled. Strings are borrowed
 *                           from the work. A work that went well has status NXD_OK, its group and
 *                           its operation, and no more.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); INVALID_STATE (not done yet); ABI_MISMATCH
 * (struct_size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_work_get_error_info(nxd_work_t* work, nxd_error_info_t* out_info);

/** Releases the work: one that has not begun is cancelled, one that runs is waited for, which the
 *  group's timeout bounds. Afterwards its buffers are the caller's.  [local]
 *  @since 0.1 */
NXD_API void nxd_work_destroy(nxd_work_t* work);

/* ---------------------------------------------------------------------------------------------
 * 5. Starting processes
 * ------------------------------------------------------------------------------------------- */

/** Processes started together on this host. */
typedef struct nxd_job nxd_job_t;

/** Options of nxd_spawn. */
typedef struct nxd_spawn_options {
  size_t struct_size;
  int32_t n_processes;     /**< 0: NEURON_NUM_DEVICES, or 1 */
  int32_t omp_num_threads; /**< OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one
                              process */
  const char* const* argv; /**< NULL-terminated program and arguments; NULL: this program,
                              re-executed with its own arguments */
} nxd_spawn_options_t;

#define NXD_SPAWN_OPTIONS_INIT \
  { sizeof(nxd_spawn_options_t), 0, 0, NULL }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_spawn_options_init(nxd_spawn_options_t* options, size_t size);

/** Starts n processes with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set, so that
 *  nxd_context_create(NULL, ...) joins them.  [local]
 *
 *  The processes are ended when this process ends. A process so started must not spawn again.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (this process was itself started by a launcher);
 *          IO (the program cannot be executed; none is left running).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_spawn(const nxd_spawn_options_t* options, nxd_job_t** out_job);

/** Waits until all processes have ended, or one has failed.  [local, blocking: until then]
 *
 *  When one fails, the others are given a grace period to report and are then ended.
 *  @param timeout_ms  0 asks once; negative waits without bound.
 *  @return NXD_OK (all ended with 0); PEER_LOST (one failed: rank and exit code in the message);
 *          TIMEOUT (still running: nothing was changed).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_wait(nxd_job_t* job, int64_t timeout_ms);

/** Sends a signal to every process still running.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_kill(nxd_job_t* job, int32_t signal_number);

/** Number of processes of the job.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_get_size(nxd_job_t* job, int32_t* out_size);

/** How a process ended.  [local]
 *
 *  @param[out] out_running    1 while it runs; the code is then 0.
 *  @param[out] out_exit_code  exit status, or 128 + signal number.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_get_exit_code(nxd_job_t* job, int32_t rank, int32_t* out_running,
                                           int32_t* out_exit_code);

/** Process id of a rank.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_job_get_pid(nxd_job_t* job, int32_t rank, int64_t* out_pid);

/** Ends what still runs, and releases the job.  [local]
 *  @since 0.1 */
NXD_API void nxd_job_destroy(nxd_job_t* job);

/* ---------------------------------------------------------------------------------------------
 * 6. The machine: limits to compare with, memory, where the time goes
 * ------------------------------------------------------------------------------------------- */

/** Measures the machine's matrix-product peak: square products of size n, the median of a few runs
 *  on this thread's OpenMP team.  [local]
 *
 *  @param dtype  F32 or BF16.
 *  @param n      edge; 0: 2048.
 *  @param[out] out_flops  floating-point operations per second, 2 n^3 per product.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t n, double* out_flops);

/** Ends the threads that the library and OpenMP keep for the calling thread between calls; the next
 * call that needs some makes them anew. Without it the library's look for work for 50 us after each
 * call, OpenMP's for some milliseconds, and then sleep.  [local]
 *
 *  @return NXD_OK; INVALID_STATE (inside a parallel region of OpenMP).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_release_threads(void);

/** Figures of the pool that tensors are drawn from, and of the contexts' arenas. */
typedef struct nxd_memory_stats {
  size_t struct_size;
  uint64_t bytes_in_use;   /**< in live tensors */
  uint64_t bytes_reserved; /**< held from the system, live or ready for reuse */
  uint64_t peak_bytes_in_use;
  uint64_t allocations;        /**< since the process started */
  uint64_t system_allocations; /**< of these, the ones that had to ask the system */
  uint64_t cap_bytes;          /**< of nxd_memory_set_cap; 0: none */
  uint64_t arena_bytes_in_use; /**< of all contexts' arenas: of nxd_arena_alloc, and in tensors
                                    that ranks of a host exchange in place */
  uint64_t
      arena_bytes_reserved; /**< address space of the arenas; pages never used take no memory */
} nxd_memory_stats_t;

/** Reads the pool's figures.  [local]
 *  @param[in,out] out_stats  struct_size set by the caller: of its own header, which may be older.
 *  @return NXD_OK; INVALID_ARGUMENT; ABI_MISMATCH (struct_size of no version).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_get_stats(nxd_memory_stats_t* out_stats);

/** Bounds what the pool hands out: beyond it, calls that need memory fail with OUT_OF_MEMORY naming
 *  what was asked for and the cap. Blocks in use stay, also when they are more than that.  [local]
 *
 *  The cap is on bytes_in_use. Memory kept for reuse is given back before the pool holds more than
 *  the cap, as far as no block in use lies on it. Arenas are not counted.
 *  @param bytes  0: no cap, as at first.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_set_cap(uint64_t bytes);

/** Gives the pool's unused memory back to the system.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_trim(void);

/** What the library spends time on while it trains. */
typedef int32_t nxd_phase_t;
enum {
  NXD_PHASE_INVALID = -1,
  NXD_PHASE_GEMM_FORWARD = 0,         /**< y = x W^T of linear layers */
  NXD_PHASE_GEMM_INPUT_GRADIENT = 1,  /**< dx = dy W */
  NXD_PHASE_GEMM_WEIGHT_GRADIENT = 2, /**< dW = dy^T x */
  NXD_PHASE_ATTENTION = 3,            /**< with its products */
  NXD_PHASE_CROSS_ENTROPY = 4,
  NXD_PHASE_ELEMENTWISE = 5,  /**< norms, activations, rotary and other embeddings, casts */
  NXD_PHASE_OPTIMIZER = 6,    /**< updates, and norms and scaling of gradients */
  NXD_PHASE_COMMUNICATION = 7 /**< collectives and messages, with the wait for other ranks */
};

/** What nxd_profile_get_phase gives. */
typedef struct nxd_phase_stats {
  size_t struct_size;
  const char* name;  /**< static storage, such as "GEMM forward" */
  double seconds;    /**< wall time of the threads that called kernels, added up */
  double operations; /**< floating-point operations: of GEMMs 2 m n k, of attention those that the
                          mask leaves, without the scores computed again; 0 elsewhere */
  uint64_t calls;
} nxd_phase_stats_t;

/** Clears the phases of the process and counts from now on. Fused kernels and collectives count,
 *  plain ATen operators do not. What a kernel calls inside of it is part of it. Two reads of a
 * clock per kernel while on, nothing that could be measured while off.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_profile_start(void);

/** Ends counting; the phases keep what they have. Kernels in progress are counted still.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_profile_stop(void);

/** Reads one phase, while counting or later.  [local]
 *
 *  @param phase  an NXD_PHASE_*; INVALID_ARGUMENT for others, so that a loop from 0 ends there.
 *  @param[in,out] out_stats  struct_size set by the caller.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_profile_get_phase(nxd_phase_t phase, nxd_phase_stats_t* out_stats);

/* ---------------------------------------------------------------------------------------------
 * 7. Optimizers and data parallelism over buffers
 *
 * Data-parallel ranks hold the same parameters and see different data. A nxd_ddp_t reduces their
 * gradients over a group, in buckets, while the backward pass goes on; with ZeRO stage 1 each rank
 * gets the reduced gradients of one part of every bucket, keeps the optimizer's state for that part
 * alone, and updates it, and the parts are gathered (Rajbhandari et al. 2020). Parameters and
 * gradients are either buffers of the caller's (nxd_ddp_create_buffers) or a module's
 * (nxd_ddp_create); optimizers work over a module (nxd_adamw_create) or over either kind of
 * nxd_ddp_t (nxd_adamw_create_ddp), and are used alike.
 *
 * A step, on every rank: backward passes, then nxd_optimizer_step, which completes the gradients,
 * takes their norm, clips and updates. Whoever wants to look at gradients in between calls
 * nxd_finish_gradients or nxd_ddp_finish, then nxd_optimizer_update.
 * ------------------------------------------------------------------------------------------- */

/** Learning rates over time; all rise linearly from rate / warmup_steps over the warm-up. */
typedef int32_t nxd_schedule_t;
enum {
  NXD_SCHEDULE_INVALID = -1,
  NXD_SCHEDULE_CONSTANT = 0,
  NXD_SCHEDULE_LINEAR = 1, /**< down to final_factor at total_steps */
  NXD_SCHEDULE_COSINE = 2  /**< the same along half a cosine (Loshchilov and Hutter 2017) */
};

/** A schedule of learning rates. Steps count from 0; after total_steps the factor stays. */
typedef struct nxd_schedule_options {
  size_t struct_size;
  nxd_schedule_t kind;
  int32_t reserved;
  int64_t warmup_steps;
  int64_t total_steps; /**< LINEAR and COSINE: more than warmup_steps */
  double final_factor; /**< of [0, 1] */
} nxd_schedule_options_t;

#define NXD_SCHEDULE_OPTIONS_INIT \
  { sizeof(nxd_schedule_options_t), NXD_SCHEDULE_CONSTANT, 0, 0, 0, 0.0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_schedule_options_init(nxd_schedule_options_t* options, size_t size);

/** The factor on the learning rate at a step, a pure function.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (a field out of range, a negative step).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_schedule_get_factor(const nxd_schedule_options_t* options, int64_t step,
                                             double* out_factor);

/** Data parallelism over a set of parameters. */
typedef struct nxd_ddp nxd_ddp_t;

/** Options of nxd_ddp_create and nxd_ddp_create_buffers; the same on all ranks. */
typedef struct nxd_ddp_options {
  size_t struct_size;
  int64_t bucket_bytes;   /**< 0: 25 MiB; a parameter that is larger has a bucket of its own */
  nxd_reduce_t reduce;    /**< SUM or AVG over the group */
  int32_t zero_stage;     /**< 0, or 1: state is sharded over the group */
  int32_t fp32_gradients; /**< 1: gradients of BF16 parameters of a module are accumulated and
                             reduced in f32 */
  int32_t no_overlap;     /**< 1: buckets are reduced when gradients are finished, not before */
  int32_t no_broadcast;   /**< 1: parameters are alike already; else the first rank's are sent */
  int32_t reserved;
} nxd_ddp_options_t;

#define NXD_DDP_OPTIONS_INIT \
  { sizeof(nxd_ddp_options_t), 0, NXD_REDUCE_SUM, 0, 0, 0, 0, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_options_init(nxd_ddp_options_t* options, size_t size);

/** Data parallelism over buffers that the caller owns, such as another framework's.
 *  [collective: the group]
 *
 *  Norms and saved states are those of the group's ranks alone: whoever splits tensors over other
 *  ranks as well sums norms, and saves one file for each part. So max_norm is UNSUPPORTED in a
 *  layout with tensor- or pipeline-parallel ranks, unless the group is the whole world: clip
 *  between nxd_ddp_finish and nxd_optimizer_update there.
 *  @param group   NULL: the data-parallel group, or the world where model parallelism is not
 *                 initialised.
 *  @param names   of the parameters, each once: what nxd_optimizer_add_group, saved states and
 *                 random bits key on; NULL: "0", "1" and so on.
 *  @param params  CPU tensors in C order, F32, F64 or BF16, the same shapes in the same order on
 *                 all ranks, in the order of use. The structs are borrowed for the call; the memory
 *                 until the ddp and its optimizers are destroyed, or nxd_ddp_rebind.
 *  @param grads   of the parameters' shapes, of their dtype, or F32 for BF16. Gradients are summed
 *                 over backward passes by the caller, and reduced in place: with zero_stage 1 only
 *                 this rank's part of them is meaningful afterwards.
 *  @return NXD_OK; INVALID_ARGUMENT, also when ranks differ (on all of them); OUT_OF_MEMORY;
 *          TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_create_buffers(nxd_context_t* ctx, nxd_group_t* group,
                                            const char* const* names, DLTensor* const* params,
                                            DLTensor* const* grads, size_t n,
                                            const nxd_ddp_options_t* options, nxd_ddp_t** out_ddp);

/** Says that a buffer has moved: for frameworks that allocate gradients anew.  [local]
 *  Between nxd_optimizer_step and the next nxd_ddp_mark_ready.
 *  @param param  NULL: as before.
 *  @param grad   NULL: as before.
 *  @return NXD_OK; INVALID_ARGUMENT (another shape or dtype); INVALID_STATE (a ddp of a module, or
 *          a reduction under way).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_rebind(nxd_ddp_t* ddp, size_t index, DLTensor* param, DLTensor* grad);

/** Number of parameters.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_get_count(nxd_ddp_t* ddp, size_t* out_count);

/** Name of a parameter; borrowed from the ddp.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_get_name(nxd_ddp_t* ddp, size_t index, const char** out_name);

/** Says that a gradient is complete for this step; when all of a bucket's are, and the buckets
 *  before it have started, its reduction starts.  [collective: the group]
 *
 *  For buffers; a module's ddp sees its gradients itself. Ranks may mark in different orders.
 *  Parameters that are not marked when gradients are finished are taken then, as they are: so
 *  marking is never needed, it only overlaps reduction with the backward pass.
 *  @return NXD_OK; INVALID_ARGUMENT (index); INVALID_STATE (marked twice, nxd_ddp_set_sync off, or
 *          a module's ddp); an error of an earlier bucket's reduction.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_mark_ready(nxd_ddp_t* ddp, size_t index);

/** Says that a parameter took no part in this step on this rank: its gradient counts as zeros. One
 *  that took part on no rank is left alone by the update.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_mark_unused(nxd_ddp_t* ddp, size_t index);

/** Reduces during the next backward passes (1, the default), or lets gradients add up (0): off for
 *  all microbatches of a step but the last.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_set_sync(nxd_ddp_t* ddp, int32_t sync);

/** Bytes of buffers that the ddp holds on this rank beside parameters and gradients.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_get_buffer_bytes(nxd_ddp_t* ddp, uint64_t* out_bytes);

/** Says that the caller's buffers hold the values of one step again, after a step that left them
 *  TORN. A module's parameters know: nxd_parameter_set_whole, nxd_module_load_safetensors and
 *  nxd_module_initialize make them whole.  [local]
 *  @return NXD_OK; INVALID_STATE (a module's ddp).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_mark_reloaded(nxd_ddp_t* ddp);

/** Waits for reductions under way and releases the ddp; optimizers over it keep what they need.
 *  [local]
 *  @since 0.1 */
NXD_API void nxd_ddp_destroy(nxd_ddp_t* ddp);

/** How gradients are completed. */
typedef struct nxd_finish_options {
  size_t struct_size;
  double scale;     /**< factor on all gradients before the norm, within F32; 0: 1 */
  double max_norm;  /**< gradients are scaled to this norm when theirs exceeds it; 0: no clipping */
  double norm_type; /**< 0: 2; 1 and infinity too */
  nxd_reduce_t data_parallel_reduce; /**< SUM or AVG over data-parallel ranks; a ddp's own option
                                        counts where there is one */
  int32_t skip_nonfinite_check;      /**< 1: a norm that is not finite is no reason to stop */
} nxd_finish_options_t;

#define NXD_FINISH_OPTIONS_INIT \
  { sizeof(nxd_finish_options_t), 0.0, 0.0, 0.0, NXD_REDUCE_SUM, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_finish_options_init(nxd_finish_options_t* options, size_t size);

/** Finishes the gradients of a ddp of zero_stage 0: waits for the reductions, then does what
 *  nxd_finish_gradients does.  [collective: tensor-, pipeline- and data-parallel groups]
 *  @param[out] out_norm  as nxd_finish_gradients; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_finish(nxd_ddp_t* ddp, const nxd_finish_options_t* options,
                                    double* out_norm);

/** Updates parameters from their gradients. */
typedef struct nxd_optimizer nxd_optimizer_t;

/** How parameters of BF16 are updated, whose spacing is wider than most steps. */
typedef int32_t nxd_bf16_update_t;
enum {
  NXD_BF16_UPDATE_INVALID = -1,
  NXD_BF16_UPDATE_MASTER = 0,     /**< an f32 copy is updated, and rounded to nearest */
  NXD_BF16_UPDATE_STOCHASTIC = 1, /**< rounded stochastically; no copy */
  NXD_BF16_UPDATE_NEAREST = 2     /**< rounded to nearest; no copy: small steps are lost */
};

/** Formulas of AdamW. */
typedef int32_t nxd_adamw_formula_t;
enum {
  NXD_ADAMW_FORMULA_INVALID = -1,
  NXD_ADAMW_FORMULA_TORCH = 0, /**< torch.optim.AdamW */
  NXD_ADAMW_FORMULA_NXD = 1    /**< NxD Core's: eps beside the uncorrected root; decay last */
};

/** Options of nxd_adamw_create. */
typedef struct nxd_adamw_options {
  size_t struct_size;
  double learning_rate; /**< 0: 1e-3 */
  double beta1;         /**< 0: 0.9 */
  double beta2;         /**< 0: 0.999 */
  double eps;           /**< 0: 1e-8 */
  double weight_decay;  /**< 0: none */
  nxd_adamw_formula_t formula;
  nxd_bf16_update_t bf16_update;
} nxd_adamw_options_t;

#define NXD_ADAMW_OPTIONS_INIT                                                     \
  {                                                                                \
    sizeof(nxd_adamw_options_t), 0.0, 0.0, 0.0, 0.0, 0.0, NXD_ADAMW_FORMULA_TORCH, \
        NXD_BF16_UPDATE_MASTER                                                     \
  }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_adamw_options_init(nxd_adamw_options_t* options, size_t size);

/** Options of nxd_sgd_create: torch.optim.SGD. */
typedef struct nxd_sgd_options {
  size_t struct_size;
  double learning_rate; /**< 0: 1e-3 */
  double momentum;      /**< of [0, 1) */
  double dampening;
  double weight_decay;
  int32_t nesterov; /**< 1: needs a momentum, and no dampening */
  nxd_bf16_update_t bf16_update;
} nxd_sgd_options_t;

#define NXD_SGD_OPTIONS_INIT \
  { sizeof(nxd_sgd_options_t), 0.0, 0.0, 0.0, 0.0, 0, NXD_BF16_UPDATE_MASTER }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_sgd_options_init(nxd_sgd_options_t* options, size_t size);

/** What a caller's update works on: a run of elements of one parameter. With ZeRO a parameter may
 *  be cut anywhere, so an update treats each element by itself. Valid during the call. */
typedef struct nxd_update {
  size_t struct_size;
  const char* parameter; /**< name */
  int64_t begin;         /**< the first element's index within this rank's parameter */
  int64_t count;         /**< elements */
  nxd_dtype_t dtype;     /**< of param and states: F32 or F64; BF16 for bf16_update NEAREST */
  nxd_dtype_t grad_dtype;
  void* param;
  const void* grad;
  double grad_scale;    /**< the gradient is to be multiplied by this first */
  void* const* states;  /**< state_count arrays, F32 or F64, zeros at the first update */
  double learning_rate; /**< with the schedule's factor */
  double weight_decay;
  int64_t step; /**< of this parameter, 1 for its first update */
} nxd_update_t;

/** An update rule of the caller's own. A call that fails leaves param and states as they were, so
 * that parameters are OLD after the first of a step, and TORN after a later one. */
typedef nxd_status_t (*nxd_update_fn)(const nxd_update_t* update, void* user_data);

/** Options of nxd_custom_optimizer_create. */
typedef struct nxd_custom_optimizer_options {
  size_t struct_size;
  nxd_update_fn update; /**< called on the thread of nxd_optimizer_step or _update */
  void* user_data;
  nxd_destroy_fn destroy; /**< called with user_data when the optimizer is gone; may be NULL */
  double learning_rate;   /**< 0: 1e-3 */
  double weight_decay;
  int32_t state_count;           /**< 0 to 8 */
  nxd_bf16_update_t bf16_update; /**< not STOCHASTIC */
} nxd_custom_optimizer_options_t;

#define NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT \
  { sizeof(nxd_custom_optimizer_options_t), NULL, NULL, NULL, 0.0, 0.0, 0, NXD_BF16_UPDATE_MASTER }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_custom_optimizer_options_init(nxd_custom_optimizer_options_t* options,
                                                       size_t size);

/** AdamW over the parameters of a ddp; see nxd_adamw_create.  [local]
 *  With zero_stage 1 the state is that of this rank's parts only.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_adamw_create_ddp(nxd_ddp_t* ddp, const nxd_adamw_options_t* options,
                                          nxd_optimizer_t** out_optimizer);

/** SGD over the parameters of a ddp.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_sgd_create_ddp(nxd_ddp_t* ddp, const nxd_sgd_options_t* options,
                                        nxd_optimizer_t** out_optimizer);

/** A caller's own update rule over the parameters of a ddp.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_custom_optimizer_create_ddp(nxd_ddp_t* ddp,
                                                     const nxd_custom_optimizer_options_t* options,
                                                     nxd_optimizer_t** out_optimizer);

/** Puts parameters into a group with hyperparameters of its own, which start as group 0's.  [local]
 *
 *  @param patterns  names, or patterns in which * stands for any characters and ? for one, such as
 *                   "*.bias"; each must match a parameter. A parameter is in the last group that
 *                   took it.
 *  @param[out] out_group  index of the group; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT (a pattern without a match: near names are given).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_add_group(nxd_optimizer_t* optimizer,
                                             const char* const* patterns, size_t n,
                                             int32_t* out_group);

/** Hyperparameters; see the options of each optimizer. */
typedef int32_t nxd_hyperparameter_t;
enum {
  NXD_HYPERPARAMETER_INVALID = -1,
  NXD_HYPERPARAMETER_LEARNING_RATE = 0, /**< without the schedule's factor */
  NXD_HYPERPARAMETER_WEIGHT_DECAY = 1,
  NXD_HYPERPARAMETER_BETA1 = 2,
  NXD_HYPERPARAMETER_BETA2 = 3,
  NXD_HYPERPARAMETER_EPS = 4,
  NXD_HYPERPARAMETER_MOMENTUM = 5,
  NXD_HYPERPARAMETER_DAMPENING = 6
};

/** Sets a hyperparameter from the next step on.  [local]
 *  @param group  -1: of all groups.
 *  @return NXD_OK; INVALID_ARGUMENT (out of range, no such group, or another kind of optimizer's).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_set_hyperparameter(nxd_optimizer_t* optimizer, int32_t group,
                                                      nxd_hyperparameter_t which, double value);

/** A hyperparameter of a group.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_hyperparameter(nxd_optimizer_t* optimizer, int32_t group,
                                                      nxd_hyperparameter_t which,
                                                      double* out_value);

/** Makes the learning rate of all groups follow a schedule over the optimizer's updates.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_set_schedule(nxd_optimizer_t* optimizer,
                                                const nxd_schedule_options_t* options);

/** What a step did. */
typedef struct nxd_step_report {
  size_t struct_size;   /**< set it before the call */
  double norm;          /**< of all gradients before clipping; the same bits on all ranks */
  double learning_rate; /**< of group 0, with the schedule's factor */
  int64_t updates;      /**< made so far, this one included */
  int32_t skipped;      /**< 1: the norm was not finite, and nothing was updated */
  int32_t reserved;
} nxd_step_report_t;

/** A training step's end: completes the gradients as nxd_finish_gradients does, updates every
 *  parameter that has one, and advances the context's step.
 *  [collective: tensor-, pipeline- and data-parallel groups]
 *
 *  Gradients are left as they are, but for their reduction: the clip factor is applied on the fly.
 *  When their norm is not finite, or after clipping beyond F32, nothing is updated, the step
 *  advances, and the report says so.
 *  @param options     NULL: defaults.
 *  @param out_report  may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (max_norm over a part of a model, see
 *          nxd_ddp_create_buffers); INVALID_STATE (parameters or state are TORN); TIMEOUT or
 *          PEER_LOST: nxd_last_error_info says of which step this rank's parameters are. TORN ones
 *          are refused by forwards, steps and saves until they are loaded again, and so is the
 *          optimizer's state until nxd_optimizer_load.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_step(nxd_optimizer_t* optimizer,
                                        const nxd_finish_options_t* options,
                                        nxd_step_report_t* out_report);

/** Updates every parameter that has a gradient, from gradients that are finished, and advances the
 *  context's step.  [local]
 *  @return NXD_OK; INVALID_STATE (zero_stage 1, whose updates are collective).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_update(nxd_optimizer_t* optimizer);

/** What the last nxd_optimizer_step or _update left of this rank's parameters.  [local]
 *  Ranks that survive a lost peer may differ: by the step and the state they know where to go on.
 *  @param[out] out_state  NONE before the first step, and once TORN ones are loaded again.
 *  @param[out] out_step   the context's step at that call; -1 before the first; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_parameter_state(nxd_optimizer_t* optimizer,
                                                       nxd_parameter_state_t* out_state,
                                                       int64_t* out_step);

/** Sets the learning rate of all groups from the next step on.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (negative or not finite).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_set_learning_rate(nxd_optimizer_t* optimizer, double rate);

/** The learning rate of group 0 at the next step, with the schedule's factor.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_learning_rate(nxd_optimizer_t* optimizer, double* out_rate);

/** Bytes of state that this rank holds: moments, momentum and f32 copies of parameters.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_get_state_bytes(nxd_optimizer_t* optimizer, uint64_t* out_bytes);

/** Writes the whole state as one safetensors file, whatever the layout: tensors NAME.STATE in the
 *  parameter's whole shape, where STATE is exp_avg, exp_avg_sq, momentum, state0 and so on, or
 *  master; updates are in the metadata. Crash-safe.  [collective: tensor, data, pipeline groups]
 *  @return the same on all ranks: NXD_OK; INVALID_ARGUMENT; IO; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_save(nxd_optimizer_t* optimizer, const char* path);

/** Reads this rank's part of a state that any layout wrote.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (another kind of optimizer, or other parameters); IO; CORRUPT.
 *          After a failure the state is as before.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_optimizer_load(nxd_optimizer_t* optimizer, const char* path);

/** Releases the optimizer and its state.  [local]
 *  @since 0.1 */
NXD_API void nxd_optimizer_destroy(nxd_optimizer_t* optimizer);

/** Which samples of a data set a data-parallel rank takes in an epoch: as
 *  torch.utils.data.DistributedSampler, with a permutation of this library's own.  [local]
 *
 *  Every epoch is one permutation of all samples, the same on all ranks; rank r takes places r,
 *  r + ranks and so on. Without drop_last the permutation is continued from its start until the
 *  ranks have equally many; with it the tail is dropped.
 *  @param shuffle  0: the samples in order.
 *  @param[out] out_indices  room for cap indices; cap 0: only the count is wanted.
 *  @param[out] out_count    indices of this rank.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_sample_epoch(int64_t n_samples, int32_t ranks, int32_t rank, int64_t epoch,
                                      uint64_t seed, int32_t shuffle, int32_t drop_last,
                                      int64_t* out_indices, size_t cap, size_t* out_count);

/* ---------------------------------------------------------------------------------------------
 * 8. Pipelines over buffers: schedules, a caller's own stages
 *
 * A pipeline cuts a model into stages that follow one another. With P ranks in the
 * pipeline-parallel group and V chunks on each (virtual stages), stage s is chunk s / P of rank
 * s % P. A batch is cut into microbatches, which travel through the stages one behind another.
 * ------------------------------------------------------------------------------------------- */

/** Orders in which ranks compute. */
typedef int32_t nxd_pp_schedule_kind_t;
enum {
  NXD_PP_SCHEDULE_INVALID = -1,
  NXD_PP_SCHEDULE_DEFAULT = 0,     /**< 1F1B with one chunk, INTERLEAVED with several */
  NXD_PP_SCHEDULE_1F1B = 1,        /**< one forward, one backward (Narayanan et al. 2019, Megatron's
                                      non-interleaved); one chunk */
  NXD_PP_SCHEDULE_INTERLEAVED = 2, /**< 1F1B over several chunks (Narayanan et al. 2021);
                                      microbatches divide by ranks */
  NXD_PP_SCHEDULE_GPIPE = 3,       /**< all forwards, then all backwards (Huang et al. 2019), in
                                      the order of the microbatches */
  NXD_PP_SCHEDULE_ZERO_BUBBLE = 4, /**< ZB-H1: weight gradients fill the bubble, at 1F1B's memory
                                      (Qi et al. 2023); one chunk */
  NXD_PP_SCHEDULE_INFERENCE = 5    /**< forwards only */
};

/** What a task computes. */
typedef int32_t nxd_pp_task_kind_t;
enum {
  NXD_PP_TASK_INVALID = -1,
  NXD_PP_TASK_FORWARD = 0,
  NXD_PP_TASK_BACKWARD = 1,       /**< gradients of inputs and of parameters */
  NXD_PP_TASK_INPUT_GRADIENT = 2, /**< of inputs alone; a WEIGHT_GRADIENT follows */
  NXD_PP_TASK_WEIGHT_GRADIENT = 3
};

/** One computation of one rank. The layout never changes. */
typedef struct nxd_pp_task {
  nxd_pp_task_kind_t kind;
  int32_t microbatch; /**< 0..microbatches - 1 */
  int32_t chunk;      /**< 0..chunks - 1, of the rank's */
} nxd_pp_task_t;

/** The tasks of all ranks, known to be complete and free of deadlock. Immutable. */
typedef struct nxd_pp_schedule nxd_pp_schedule_t;

/** Makes one of the library's schedules.  [local]
 *
 *  @param ranks   of the pipeline, at least 1.
 *  @param chunks  of each rank, at least 1.
 *  @return NXD_OK; INVALID_ARGUMENT (a shape that the schedule does not admit: the message says
 * what it needs).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_create(nxd_pp_schedule_kind_t kind, int32_t ranks,
                                            int32_t chunks, int32_t microbatches,
                                            nxd_pp_schedule_t** out_schedule);

/** Makes a schedule of the caller's tasks, and proves it.  [local]
 *
 *  Every stage computes every microbatch once forwards; and, if there are backward tasks at all,
 *  once backwards: in one task, or in an INPUT_GRADIENT and a later WEIGHT_GRADIENT. Those that
 *  make the input gradients of a chunk come in the order of the microbatches, and so do those that
 *  make its weight gradients: sums over microbatches then have the same bits in every schedule.
 *  Ranks make their tasks in order, send without waiting, and wait for what they receive.
 *  @param tasks   those of rank 0 in the order it makes them, then those of rank 1 and so on.
 *  @param counts  how many each rank has; of length ranks.
 *  @return NXD_OK; INVALID_ARGUMENT names the first task that is missing, doubled or out of range,
 *          or the tasks that would wait for one another for ever.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_create_tasks(int32_t ranks, int32_t chunks,
                                                  int32_t microbatches, const nxd_pp_task_t* tasks,
                                                  const size_t* counts,
                                                  nxd_pp_schedule_t** out_schedule);

/** The tasks of a rank, in order, by the rule of nxd_layout_get_group.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_get_tasks(nxd_pp_schedule_t* schedule, int32_t rank,
                                               nxd_pp_task_t* tasks, size_t cap, size_t* out_count);

/** Name of a schedule, such as "1F1B"; borrowed from it.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_get_name(nxd_pp_schedule_t* schedule, const char** out_name);

/** Durations to judge a schedule by, in any one unit. */
typedef struct nxd_pp_costs {
  size_t struct_size;
  const double* forward;         /**< of one microbatch, of each stage; NULL: 1 */
  const double* backward_input;  /**< NULL: as forward */
  const double* backward_weight; /**< NULL: as forward; a BACKWARD task takes both */
  double transfer;               /**< of values or gradients between stages on different ranks */
} nxd_pp_costs_t;

#define NXD_PP_COSTS_INIT \
  { sizeof(nxd_pp_costs_t), NULL, NULL, NULL, 0.0 }

/** Fills costs with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_costs_init(nxd_pp_costs_t* costs, size_t size);

/** What becomes of a schedule under given costs. */
typedef struct nxd_pp_report {
  size_t struct_size;
  double makespan;      /**< until the last rank is done */
  double critical_path; /**< longest chain of tasks and transfers that depend on one another, were
                           there as many processors as tasks */
  double bubble_share;  /**< idle time of all ranks over ranks * makespan, 0 to 1 */
  int32_t peak_activations; /**< microbatches of a chunk, forwards done and weight gradients not,
                               that the fullest rank keeps at once; 0 without backward tasks */
  int32_t fullest_rank;     /**< the first one, if several are */
} nxd_pp_report_t;

/** Plays a schedule through.  [local]
 *  @param costs         NULL: all 1, free transfers.
 *  @param[in,out] out_report  struct_size set by the caller; the rest is filled.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_schedule_get_report(nxd_pp_schedule_t* schedule,
                                                const nxd_pp_costs_t* costs,
                                                nxd_pp_report_t* out_report);

/** Releases a schedule; pipelines made with it keep what they need.  [local]
 *  @since 0.1 */
NXD_API void nxd_pp_schedule_destroy(nxd_pp_schedule_t* schedule);

/** A tensor that goes from one stage to the next, of the same shape in every microbatch. */
typedef struct nxd_pp_value {
  const char* name;     /**< for messages */
  const int64_t* shape; /**< of one microbatch */
  int32_t ndim;
  nxd_dtype_t dtype;
  int32_t needs_grad; /**< 1: its gradient, of the same shape and dtype, comes back */
  int32_t reserved;
} nxd_pp_value_t;

/** Where a stage's callback is called for. */
typedef struct nxd_pp_call {
  int32_t stage; /**< 0..P * V - 1 */
  int32_t chunk; /**< of this rank's */
  int32_t microbatch;
  int32_t last; /**< 1: no later task of this run adds to this chunk's parameter gradients */
  double
      loss_weight; /**< what the loss of this microbatch is multiplied by: scale its gradient so */
} nxd_pp_call_t;

/** A rank's stages, computed by the caller. Tensors are CPU tensors in C order of the values'
 *  shapes, borrowed for the call, except inputs, which stay as they are until the microbatch's last
 *  backward task. Called on the thread that is inside nxd_pp_run_train or nxd_pp_run_eval. */
typedef struct nxd_pp_stage_callbacks {
  size_t struct_size;
  void* user_data;
  nxd_destroy_fn destroy; /**< may be NULL */
  /** Fills outputs; in the last stage sets *out_loss, which is NULL in others. */
  nxd_status_t (*forward)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                          DLTensor* const* outputs, double* out_loss, void* user_data);
  /** Fills grad_inputs and adds to the parameters' gradients. grad_outputs and grad_inputs are NULL
   *  where a value needs no gradient. In the last stage there are no outputs: the loss is
   *  differentiated. */
  nxd_status_t (*backward)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                           DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                           void* user_data);
  /** Fills grad_inputs alone; NULL: the stage cannot, and schedules with such tasks are refused. */
  nxd_status_t (*backward_input)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                 DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                                 void* user_data);
  /** Adds to the parameters' gradients, some time after backward_input. */
  nxd_status_t (*backward_weight)(const nxd_pp_call_t* call, DLTensor* const* inputs,
                                  DLTensor* const* grad_outputs, void* user_data);
} nxd_pp_stage_callbacks_t;

/** What the losses of microbatches add up to. */
typedef int32_t nxd_pp_loss_t;
enum {
  NXD_PP_LOSS_INVALID = -1,
  NXD_PP_LOSS_DEFAULT =
      0, /**< TOKENS for a built-in model that is given labels, else MICROBATCHES */
  NXD_PP_LOSS_MICROBATCHES = 1, /**< the mean of the microbatches' losses */
  NXD_PP_LOSS_TOKENS = 2        /**< the mean over the valid tokens of all microbatches and
                                   data-parallel ranks: see nxd_loss_weights */
};

/** A model's or a caller's stages on this rank, and the schedule they run by. */
typedef struct nxd_pp nxd_pp_t;

/** Options of nxd_pp_create_callbacks; the same on all ranks of the pipeline. */
typedef struct nxd_pp_callbacks_options {
  size_t struct_size;
  int32_t num_microbatches;           /**< at least 1 */
  int32_t virtual_size;               /**< chunks of each rank; 0: 1 */
  nxd_pp_schedule_kind_t schedule;    /**< of training */
  int32_t broadcast_and_average_loss; /**< 1: every rank gets the mean over data-parallel ranks;
                                         0: the last stage's rank gets its own, others 0 */
  nxd_pp_schedule_t* custom_schedule; /**< instead of schedule; NULL: none */
} nxd_pp_callbacks_options_t;

#define NXD_PP_CALLBACKS_OPTIONS_INIT \
  { sizeof(nxd_pp_callbacks_options_t), 1, 0, NXD_PP_SCHEDULE_DEFAULT, 0, NULL }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_callbacks_options_init(nxd_pp_callbacks_options_t* options,
                                                   size_t size);

/** A pipeline whose stages the caller computes.  [collective: the pipeline-parallel group]
 *
 *  @param inputs   of this rank's chunks one after the other: what comes from the stage before.
 *                  Stage 0 has none: its callback reads its data itself. NULL when there are none.
 *  @param outputs  likewise: what goes to the stage after; the last stage has none. They must equal
 *                  the next stage's inputs in all but names.
 *  @param n_inputs, n_outputs  how many each chunk has; of length virtual_size.
 *  @param callbacks  copied; on failure destroy is not called.
 *  @return NXD_OK; INVALID_ARGUMENT (also when neighbours do not agree, on all ranks);
 * INVALID_STATE (model parallel not initialised); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_create_callbacks(nxd_context_t* ctx,
                                             const nxd_pp_callbacks_options_t* options,
                                             const nxd_pp_value_t* inputs, const size_t* n_inputs,
                                             const nxd_pp_value_t* outputs, const size_t* n_outputs,
                                             const nxd_pp_stage_callbacks_t* callbacks,
                                             nxd_pp_t** out_pp);

/** One step of a pipeline over callbacks: forwards and backwards of all microbatches, or, without
 *  training, forwards alone.  [collective: the pipeline-parallel group; with
 *  broadcast_and_average_loss also the data-parallel group]
 *
 *  Gradients of parameters are the caller's, added up over microbatches. Messages go over the
 *  pipeline-parallel group, with tags from 65533 on.
 *
 *  When a callback fails, all ranks that still have to do with the run fail with its status, and
 *  their messages name its rank, stage and microbatch; with broadcast_and_average_loss the others
 *  get INVALID_ARGUMENT, without it they may have been done. The next run may begin.
 *  @param[out] out_loss  mean of the microbatches' losses: see broadcast_and_average_loss. NaN
 *                        where a callback set none. May be NULL.
 *  @return NXD_OK; a callback's error; INVALID_STATE (the schedule has no backward tasks, or the
 *          stages are modules); TIMEOUT or PEER_LOST: the message names the task that waited, its
 *          stage and microbatch, and the peer; the group is poisoned, as it is when the interrupt
 *          callback ends a wait.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run(nxd_pp_t* pp, int32_t training, double* out_loss);

/** Whether this rank has the last stage, and so the losses.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_has_loss(nxd_pp_t* pp, int32_t* out_has);

/** The schedule of training runs; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_schedule(nxd_pp_t* pp, nxd_pp_schedule_t** out_schedule);

/** Bytes of the buffers that the pipeline receives into on this rank: kept from run to run, and as
 *  many as the schedule needs at once.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_buffer_bytes(nxd_pp_t* pp, uint64_t* out_bytes);

/** Records when tasks, messages and waits begin and end, in all runs from now on (1), or no longer
 *  (0). Starting forgets what was recorded.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_set_timeline(nxd_pp_t* pp, int32_t on);

/** Writes what all ranks recorded, on rank 0 of the world: as a trace that chrome://tracing and
 *  Perfetto read (path ends in ".json"), or as a picture (".svg"). Ranks that are not the first of
 *  their tensor- and data-parallel groups have recorded alike and are left out.  [collective:
 * world]
 *  @return NXD_OK; INVALID_ARGUMENT (path); INVALID_STATE (nothing recorded); IO, on all ranks;
 *          TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_write_timeline(nxd_pp_t* pp, const char* path);

/** Releases the pipeline. The model, if it has one, stays in parts: its parameters outside of this
 *  rank's stages have no values.  [local]
 *  @since 0.1 */
NXD_API void nxd_pp_destroy(nxd_pp_t* pp);

/* Planning: what a layout costs, from counts alone. Nothing runs, and no rank needs to exist. */

/** How a model is cut into stages. */
typedef int32_t nxd_pp_partition_t;
enum {
  NXD_PP_PARTITION_INVALID = -1,
  NXD_PP_PARTITION_DEFAULT = 0, /**< at pipeline_cuts if given, else EVEN */
  NXD_PP_PARTITION_EVEN = 1,    /**< as many layers everywhere, the remainder in the later stages */
  NXD_PP_PARTITION_COST = 2     /**< the most expensive stage is as cheap as can be: floating-point
                                   operations, counted from shapes, of layers, embedding, head and
                                   loss */
};

/** Sizes of a decoder that predicts the next token. nxd_plan_model_from_config fills it. */
typedef struct nxd_plan_model {
  size_t struct_size;
  int64_t hidden_size;
  int64_t num_layers; /**< at most 1024 */
  int64_t num_heads;
  int64_t num_kv_heads; /**< 0: num_heads */
  int64_t head_dim;     /**< 0: hidden_size / num_heads */
  int64_t intermediate_size;
  int64_t vocab_size;
  int64_t max_positions; /**< rows of a table of positions that is learned; 0: there is none */
  int32_t gated_mlp;     /**< 1: three matrices, as Llama's; 0: two, as GPT-2's */
  int32_t attention_bias, mlp_bias, norm_bias; /**< 1: layers of that sort have biases */
  int32_t tied_embeddings;                     /**< 1: the head's weight is the embedding's */
  int32_t reserved;
} nxd_plan_model_t;

#define NXD_PLAN_MODEL_INIT \
  { sizeof(nxd_plan_model_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Fills model with zeros: sizes have no defaults but those that say so.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_model_init(nxd_plan_model_t* model, size_t size);

/** Reads the sizes of a Hugging Face configuration of a family that nxd_model_create knows: "llama"
 *  or "gpt2".  [local]
 *
 *  @param config_json  text of config.json.
 *  @param[in,out] out_model  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range); UNSUPPORTED
 *          (model_type).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_model_from_config(const char* config_json,
                                                nxd_plan_model_t* out_model);

/** Figures of a machine, for each rank while all ranks are at it. Floating-point operations and
 *  bytes are per second, latencies in seconds. The defaults are round figures of one core of a
 * small host: good to compare layouts, not to foretell a time. */
typedef struct nxd_plan_machine {
  size_t struct_size;
  int32_t ranks_per_host; /**< 0: all ranks are on one host */
  int32_t reserved;
  uint64_t memory_bytes;       /**< of a rank, for what is predicted; 0: no bound */
  double gemm_flops_f32;       /**< of nxd_measure_gemm_peak; 0: 100e9 */
  double gemm_flops_bf16;      /**< 0: 200e9 */
  double attention_share_f32;  /**< of these, what attention's products reach; 0: 0.59 */
  double attention_share_bf16; /**< 0: 0.5 */
  double memory_bandwidth;     /**< read and written, of arrays that fit no cache; 0: 20e9 */
  double host_bandwidth;       /**< received from ranks of the same host; 0: 20e9 */
  double host_latency;         /**< 0: 1e-6 */
  double link_bandwidth;       /**< of a host to all others, in one direction; 0: 1.25e9 */
  double link_latency;         /**< 0: 50e-6 */
} nxd_plan_machine_t;

#define NXD_PLAN_MACHINE_INIT \
  { sizeof(nxd_plan_machine_t), 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 }

/** Fills machine with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_machine_init(nxd_plan_machine_t* machine, size_t size);

/** How a model would be trained with AdamW. */
typedef struct nxd_plan_layout {
  size_t struct_size;
  int32_t tensor_parallel_size;    /**< 0: 1 */
  int32_t pipeline_parallel_size;  /**< 0: 1 */
  int32_t data_parallel_size;      /**< 0: 1 */
  int32_t virtual_size;            /**< chunks of each rank; 0: 1 */
  nxd_pp_schedule_kind_t schedule; /**< not INFERENCE */
  int32_t num_microbatches;        /**< of each data-parallel rank; 0: 1 */
  int32_t microbatch_size;         /**< sequences; 0: 1 */
  int32_t sequence_length;         /**< tokens; at least 1 */
  nxd_dtype_t dtype;               /**< of parameters: F32, or BF16 with F32 masters */
  int32_t zero_stage;              /**< 0 or 1 */
  int32_t sequence_parallel;       /**< 1: sequence_length divides by tensor_parallel_size */
  int32_t recompute;               /**< 1: every layer keeps its input alone */
  nxd_pp_partition_t partition;    /**< DEFAULT: EVEN */
  int32_t reserved;
} nxd_plan_layout_t;

#define NXD_PLAN_LAYOUT_INIT                                                                      \
  {                                                                                               \
    sizeof(nxd_plan_layout_t), 0, 0, 0, 0, NXD_PP_SCHEDULE_DEFAULT, 0, 0, 0, NXD_DTYPE_F32, 0, 0, \
        0, NXD_PP_PARTITION_DEFAULT, 0                                                            \
  }

/** Fills layout with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_layout_init(nxd_plan_layout_t* layout, size_t size);

/** What a layout would cost. Times are seconds of one step. */
typedef struct nxd_plan_prediction {
  size_t struct_size;
  double step_seconds;
  double tokens_per_second; /**< of all ranks */
  double gemm_share;        /**< of the ranks' GEMM peaks, by the operations of
                               nxd_model_get_step_flops */
  double bubble_share;      /**< of the pipeline, by nxd_pp_schedule_get_report */
  double pipeline_seconds;  /**< until the last rank has made its last task */

  /* Of the rank that computes longest. */
  int32_t busiest_rank; /**< of the world; the first of those that are alike */
  int32_t fits;         /**< 1: total_bytes is at most the machine's memory_bytes */
  double gemm_seconds;
  double attention_seconds;
  double elementwise_seconds;
  double tensor_parallel_seconds; /**< collectives of layers */
  double transfer_seconds;        /**< one value or gradient to the next stage, the slowest */
  double data_parallel_seconds;   /**< reduction of gradients and gathering of parameters */
  double exposed_seconds;         /**< of these, those in which nothing else is done */
  double optimizer_seconds;

  /* Of the rank that keeps most, with the most that it keeps at once. */
  int32_t fullest_rank;
  int32_t reserved;
  uint64_t parameter_bytes;
  uint64_t gradient_bytes;
  uint64_t optimizer_bytes;
  uint64_t activation_bytes;
  uint64_t buffer_bytes; /**< received values, sums under way, gradients of activations */
  uint64_t total_bytes;
} nxd_plan_prediction_t;

/** Predicts a layout, with the schedules that pipelines run and the rules by which they are cut.
 *  docs/planner.md says how, and how far off it is.  [local]
 *
 *  @param machine  NULL: all defaults.
 *  @param[in,out] out_prediction  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (a size that is missing, out of range, or does not divide).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_predict(const nxd_plan_model_t* model,
                                      const nxd_plan_machine_t* machine,
                                      const nxd_plan_layout_t* layout,
                                      nxd_plan_prediction_t* out_prediction);

/** What nxd_plan_search looks for. */
typedef struct nxd_plan_search_options {
  size_t struct_size;
  int32_t world_size;       /**< 1 to 65536 ranks */
  int32_t sequence_length;  /**< tokens */
  int64_t batch_size;       /**< sequences of a step, of all ranks together */
  nxd_dtype_t dtype;        /**< F32 or BF16 */
  int32_t max_virtual_size; /**< 0: 4 */
} nxd_plan_search_options_t;

#define NXD_PLAN_SEARCH_OPTIONS_INIT \
  { sizeof(nxd_plan_search_options_t), 0, 0, 0, NXD_DTYPE_F32, 0 }

/** Fills options with defaults; sizes have none.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_search_options_init(nxd_plan_search_options_t* options, size_t size);

/** Finds the layouts of all ranks that take least time and fit, best first; of equal ones those
 *  that keep less. All schedules are tried, cuts of both sorts, with and without ZeRO, sequence
 *  parallelism and recomputation.  [local]
 *
 *  @param layouts, predictions  of length cap, struct_size of each first set by the caller; either
 *                 may be NULL.
 *  @param[out] out_count  how many were filled: at most cap.
 *  @return NXD_OK; INVALID_ARGUMENT (a size out of range; no layout divides the model; or none
 *          fits: the message gives the one that needs least).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_search(const nxd_plan_model_t* model,
                                     const nxd_plan_machine_t* machine,
                                     const nxd_plan_search_options_t* options,
                                     nxd_plan_layout_t* layouts, nxd_plan_prediction_t* predictions,
                                     size_t cap, size_t* out_count);

/* ---------------------------------------------------------------------------------------------
 * 9. Tensors (libnxd)
 * ------------------------------------------------------------------------------------------- */

/** Handle on a tensor. Several handles may share one storage. */
typedef struct nxd_tensor nxd_tensor_t;

/** Whether ATen, libtorch's tensor library, takes the memory of new CPU tensors from the pool of
 *  section 6 too. For the whole process, and at any time: memory goes back to where it came from.
 *  [local]
 *
 *  On at first when libnxd brought libtorch into the process. Off where the program, or another
 *  library of it, uses libtorch itself, or has given ATen an allocator; NXD_ATEN_POOL=1 or 0 beats
 *  both. What counts is the moment at which libnxd is loaded.
 *
 *  If it is on then, malloc is also told to keep up to 64 MB of free memory (glibc's mallopt),
 * unless the environment sets malloc up; switching off later leaves that.
 *  @param on  1 or 0.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (the program has set an allocator of its own
 *          that ATen ranks higher).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_set_aten_pool(int32_t on);

/** Whether ATen takes the memory of new CPU tensors from the pool: 1 or 0.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_get_aten_pool(int32_t* out_on);

/** A tensor of zeros in C order.  [local]
 *
 *  @param shape   ndim sizes, each 0 or more; may be NULL when ndim is 0 (a scalar).
 *  @param device  NXD_DEVICE_CPU or NXD_DEVICE_META (shape and dtype only).
 *  @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; UNSUPPORTED (device).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_create(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype,
                                       nxd_device_t device, nxd_tensor_t** out_tensor);

/** A tensor in C order with a copy of the caller's data.  [local]
 *
 *  @param data   as many elements of dtype as the shape has; NULL only when it has none.
 *  @param bytes  size of data: elements times the element size, checked.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_data(const void* data, size_t bytes, const int64_t* shape,
                                          int32_t ndim, nxd_dtype_t dtype,
                                          nxd_tensor_t** out_tensor);

/** A tensor with a copy of a borrowed DLPack tensor, any strides.  [local]
 *
 *  @param source  borrowed for the call; on the CPU.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (device, dtype, lanes).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_copy_dltensor(const DLTensor* source, nxd_tensor_t** out_tensor);

/** A tensor over the memory of a managed DLPack tensor, without a copy.  [local]
 *
 *  @param managed  taken over on success: its deleter is called, on any thread, when the last
 *                  tensor over the memory is gone. On failure it stays the caller's.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_dlpack(DLManagedTensor* managed, nxd_tensor_t** out_tensor);

/** The same for the versioned form; read-only memory is refused.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (read-only); UNSUPPORTED (major version other than 1).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed,
                                                      nxd_tensor_t** out_tensor);

/** The tensor's memory as a managed DLPack tensor, without a copy.  [local]
 *
 *  @param[out] out_managed  the caller calls its deleter once; the memory lives until then.
 *  @return NXD_OK; INVALID_ARGUMENT (requires grad: detach first); UNSUPPORTED (meta device).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_to_dlpack(nxd_tensor_t* tensor, DLManagedTensor** out_managed);

/** The same in the versioned form.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_to_dlpack_versioned(nxd_tensor_t* tensor,
                                                    struct DLManagedTensorVersioned** out_managed);

/** Another handle on the same tensor.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_retain(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor);

/** Releases a handle.  [local]
 *  @since 0.1 */
NXD_API void nxd_tensor_destroy(nxd_tensor_t* tensor);

/** Number of dimensions.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_ndim(nxd_tensor_t* tensor, int32_t* out_ndim);

/** Sizes of the dimensions.  [local]
 *
 *  @param shape  room for cap sizes; may be NULL when cap is 0.
 *  @param[out] out_ndim  dimensions. When it exceeds cap nothing is copied, and a cap other than 0
 *                        is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_shape(nxd_tensor_t* tensor, int64_t* shape, size_t cap,
                                          size_t* out_ndim);

/** Strides in elements; as nxd_tensor_get_shape.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_strides(nxd_tensor_t* tensor, int64_t* strides, size_t cap,
                                            size_t* out_ndim);

/** Element type.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_dtype(nxd_tensor_t* tensor, nxd_dtype_t* out_dtype);

/** Device.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_device(nxd_tensor_t* tensor, nxd_device_t* out_device);

/** Number of elements.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_element_count(nxd_tensor_t* tensor, int64_t* out_count);

/** First element in memory; borrowed. After writing through it, call nxd_tensor_mark_modified.
 *  [local]
 *  @return NXD_OK; UNSUPPORTED (meta device).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_data(nxd_tensor_t* tensor, void** out_data);

/** Says that the tensor's memory was written by other means than this library, so that what was
 *  derived from it is made anew.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_mark_modified(nxd_tensor_t* tensor);

/** Copies all elements out, in C order.  [local]
 *  @param bytes  size of buf: elements times the element size, checked.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_copy_to_host(nxd_tensor_t* tensor, void* buf, size_t bytes);

/** Overwrites all elements in place from C order; not recorded by autograd.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_copy_from_host(nxd_tensor_t* tensor, const void* buf, size_t bytes);

/** Value of a tensor of one element, as a double.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (not one element).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_item(nxd_tensor_t* tensor, double* out_value);

/* ---------------------------------------------------------------------------------------------
 * 10. Operators by name (libnxd)
 * ------------------------------------------------------------------------------------------- */

/** One call of an ATen operator: arguments are set by name, then it runs. */
typedef struct nxd_op nxd_op_t;

/** Looks up an operator.  [local]
 *
 *  @param name      such as "aten::softmax"; "aten::" may be left out.
 *  @param overload  such as "int" or "Tensor"; NULL or "": the overload without a name, or the only
 *                   one.
 *  @return NXD_OK; INVALID_ARGUMENT (no such operator or overload; the message lists near names
 *          and the overloads there are).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_create(const char* name, const char* overload, nxd_op_t** out_op);

/** Releases the call and what it holds.  [local]
 *  @since 0.1 */
NXD_API void nxd_op_destroy(nxd_op_t* op);

/** The operator's schema as text, such as "aten::relu(Tensor self) -> Tensor"; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_schema(nxd_op_t* op, const char** out_schema);

/** Sets a tensor argument; NULL sets None where the schema allows it.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (no such argument, or one of another type; the schema is in the
 *          message). The same for all nxd_op_set_* functions.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_tensor(nxd_op_t* op, const char* name, nxd_tensor_t* tensor);

/** Sets a tensor-list argument.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_tensors(nxd_op_t* op, const char* name,
                                        nxd_tensor_t* const* tensors, size_t n_tensors);

/** Sets an integer, or a scalar by an integer.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_int(nxd_op_t* op, const char* name, int64_t value);

/** Sets a float, or a scalar by a float.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_double(nxd_op_t* op, const char* name, double value);

/** Sets a boolean.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_bool(nxd_op_t* op, const char* name, int32_t value);

/** Sets a string, or a device by its name such as "meta".  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_string(nxd_op_t* op, const char* name, const char* value);

/** Sets a dtype argument.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_dtype(nxd_op_t* op, const char* name, nxd_dtype_t value);

/** Sets an integer list, also for a list of scalars or booleans.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_ints(nxd_op_t* op, const char* name, const int64_t* values,
                                     size_t n_values);

/** Sets a float list, also for a list of scalars.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_doubles(nxd_op_t* op, const char* name, const double* values,
                                        size_t n_values);

/** Runs the operator; arguments not set take the schema's defaults. May be called again.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (an argument without a default is missing, or the operator
 *          refuses its arguments: its own message).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_run(nxd_op_t* op);

/** Number of results of the last run; a tensor list counts its members.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_result_count(nxd_op_t* op, size_t* out_count);

/** A tensor result of the last run; the caller destroys it.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (index, or the result is no tensor); INVALID_STATE (not run).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_tensor(nxd_op_t* op, size_t index, nxd_tensor_t** out_tensor);

/** A number or boolean result of the last run.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_double(nxd_op_t* op, size_t index, double* out_value);

/** Calls an operator whose required arguments are all tensors, in one go.  [local]
 *
 *  @param inputs   n_inputs tensors for its leading arguments.
 *  @param outputs  room for n_outputs handles, which the caller destroys.
 *  @return NXD_OK; INVALID_ARGUMENT (also when it has fewer results than n_outputs).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_call(const char* name, const char* overload,
                                 nxd_tensor_t* const* inputs, size_t n_inputs,
                                 nxd_tensor_t** outputs, size_t n_outputs);

/* ---------------------------------------------------------------------------------------------
 * 11. Automatic differentiation (libnxd)
 *
 * Backward passes run on the thread that asks for them. Where layers communicate, every rank of
 * their group runs the same backward pass.
 * ------------------------------------------------------------------------------------------- */

/** Whether operations on the tensor are recorded for differentiation.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_requires_grad(nxd_tensor_t* tensor, int32_t* out_requires);

/** Makes a leaf tensor require a gradient, or not.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (integer dtype); INVALID_STATE (not a leaf).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_set_requires_grad(nxd_tensor_t* tensor, int32_t requires_grad);

/** Gradient accumulated in a leaf.  [local]
 *  @param[out] out_grad  the caller destroys it; NULL with NXD_OK when there is none yet.
 *  @return NXD_OK; INVALID_STATE (not a leaf).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_grad(nxd_tensor_t* tensor, nxd_tensor_t** out_grad);

/** Replaces the gradient of a leaf; NULL clears it.  [local]
 *  @param grad  same shape and dtype as the tensor; shared, not copied. It may not require a
 *               gradient itself.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (not a leaf).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_set_grad(nxd_tensor_t* tensor, nxd_tensor_t* grad);

/** A handle on the same memory, outside of the recorded graph.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_detach(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor);

/** Turns recording on this thread on or off.  [local]
 *  @param[out] out_previous  setting before the call; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_grad_enabled(int32_t enabled, int32_t* out_previous);

/** Turns automatic casts on this thread on or off: parameters and optimizers stay in F32, while
 *  products of matrices run in 16 bits.  [local]
 *
 *  While on, arguments of dtype F32, BF16 and F16 are cast before an operator runs that one of
 *  these lists names, those of PyTorch's torch.autocast on accelerators (docs/training.md has all):
 *   - in dtype: products of matrices, convolutions, attention;
 *   - in F32: norms, softmax, exponentials, logarithms, powers, sums, losses;
 *   - in the widest dtype among the arguments: what joins or mixes several, such as cat and
 * addcmul. Other operators take what they are given; F64 and integers are never cast, nor are the
 * arguments of operators that write to one of them. Casts are recorded: gradients have the dtypes
 * of the parameters. It applies to nxd_op_run, nxd_op_call and to built-in layers, which then take
 * inputs of F32 and of BF16: linear layers, attention, gated MLPs and language heads compute in
 * dtype and give it; norms, their sums with residuals, and losses are F32; an embedding has the
 * dtype of its table.
 *
 *  A backward pass runs without it, in the dtypes of its forward; so do other threads.
 *
 *  @param dtype  NXD_DTYPE_BF16: on; NXD_DTYPE_INVALID: off, as it is at first.
 *  @param[out] out_previous  setting before the call, to be set again at the end of a nested
 * region; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT (another dtype; the setting and out_previous stay as they are).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_set_autocast(nxd_dtype_t dtype, nxd_dtype_t* out_previous);

/** Accumulates gradients into the leaves of the graph.  [collective: the groups of the layers in
 *  the graph]
 *
 *  @param outputs   n tensors; recorded, or leaves that require a gradient.
 *  @param grads     n gradients of their shapes; NULL, or NULL for a scalar: 1.
 *  @param retain_graph  1: the graph may be differentiated again.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (differentiated before without retain_graph, or
 *          a tensor the graph needs was overwritten); what a custom function or a collective in the
 *          graph returned.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_backward(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads,
                                  size_t n_outputs, int32_t retain_graph);

/** Gradients of outputs with respect to some inputs, without touching any leaf's gradient.
 *  [collective: the groups of the layers in the graph]
 *
 *  @param[out] out_grads  room for n_inputs handles, which the caller destroys; NULL where an input
 *                         does not influence the outputs.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_gradients(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads,
                                   size_t n_outputs, nxd_tensor_t* const* inputs, size_t n_inputs,
                                   int32_t retain_graph, nxd_tensor_t** out_grads);

/** A differentiable function written by the caller. */
typedef struct nxd_function nxd_function_t;

/** One application of a custom function; valid inside its callbacks. */
typedef struct nxd_function_call nxd_function_call_t;

/** Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph. Outputs
 *  are new handles that the library takes over, also those filled before the callback fails; a
 *  borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is recorded. */
typedef struct nxd_function_options {
  size_t struct_size;
  const char* name; /**< stable and unique, such as "mylib::swish" */
  size_t n_outputs; /**< 0: 1 */
  /** Fills n_outputs outputs. */
  nxd_status_t (*forward)(nxd_function_call_t* call, nxd_tensor_t* const* inputs, size_t n_inputs,
                          nxd_tensor_t** outputs, size_t n_outputs, void* user_data);
  /** Fills the gradient of each input from those of the outputs; NULL for an input that has none.
   *  A NULL in grad_outputs means zero. May be NULL: then the function is not differentiable. */
  nxd_status_t (*backward)(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                           size_t n_outputs, nxd_tensor_t** grad_inputs, size_t n_inputs,
                           void* user_data);
  /** Fills outputs of the right shape and dtype from inputs on the meta device. May be NULL: then
   *  the function cannot be traced. */
  nxd_status_t (*shape)(nxd_tensor_t* const* inputs, size_t n_inputs, nxd_tensor_t** outputs,
                        size_t n_outputs, void* user_data);
  void* user_data;
  nxd_destroy_fn destroy; /**< called when the function and its last recorded graph are gone */
} nxd_function_options_t;

#define NXD_FUNCTION_OPTIONS_INIT \
  { sizeof(nxd_function_options_t), NULL, 0, NULL, NULL, NULL, NULL, NULL }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_options_init(nxd_function_options_t* options, size_t size);

/** Makes a custom function.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (name or forward missing). On failure destroy is not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_create(const nxd_function_options_t* options,
                                         nxd_function_t** out_function);

/** Applies the function; recorded when an input requires a gradient.  [local]
 *
 *  @param outputs  room for n_outputs handles, which the caller destroys; n_outputs as created.
 *  @return NXD_OK; INVALID_ARGUMENT; what a callback returned.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_apply(nxd_function_t* function, nxd_tensor_t* const* inputs,
                                        size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs);

/** Releases the function; recorded graphs keep what they need.  [local]
 *  @since 0.1 */
NXD_API void nxd_function_destroy(nxd_function_t* function);

/** Keeps a tensor from forward for backward.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_call_save(nxd_function_call_t* call, nxd_tensor_t* tensor);

/** A tensor kept by forward, by its order; borrowed for the callback.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (index).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_call_get_saved(nxd_function_call_t* call, size_t index,
                                                 nxd_tensor_t** out_tensor);

/** Whether backward needs the gradient of an input.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_function_call_needs_grad(nxd_function_call_t* call, size_t input_index,
                                                  int32_t* out_needs);

/* ---------------------------------------------------------------------------------------------
 * 12. Modules and parameters (libnxd)
 *
 * A module is a node of a named tree with a class name, parameters and a forward function. A
 * parameter has one owner and one canonical name: the path from the root, such as
 * "model.layers.0.mlp.down_proj.weight". Initial weights are a function of the seed, the canonical
 * name and the global index of each element, so that every layout starts from the same model.
 *
 * Gradients that a backward pass leaves in parameters are partial until nxd_finish_gradients:
 * those of norms under sequence parallelism, of replicated key and value heads, and of all
 * parameters under data parallelism still lack the other ranks' contributions.
 * ------------------------------------------------------------------------------------------- */

/** Node of a model. */
typedef struct nxd_module nxd_module_t;

/** Parameter of a module, or rather this rank's shard of it. */
typedef struct nxd_parameter nxd_parameter_t;

/** On, off, or the default that the field's comment names. */
typedef int32_t nxd_toggle_t;
enum { NXD_TOGGLE_INVALID = -1, NXD_TOGGLE_DEFAULT = 0, NXD_TOGGLE_ON = 1, NXD_TOGGLE_OFF = 2 };

/** Distribution of initial weights. */
typedef int32_t nxd_init_t;
enum {
  NXD_INIT_INVALID = -1,
  NXD_INIT_DEFAULT = 0,        /**< of the layer: see its comment */
  NXD_INIT_NORMAL = 1,         /**< mean a, standard deviation b */
  NXD_INIT_UNIFORM = 2,        /**< from a to b */
  NXD_INIT_CONSTANT = 3,       /**< a */
  NXD_INIT_KAIMING_UNIFORM = 4 /**< He et al. 2015: bound sqrt(6 / ((1 + a^2) fan_in)) */
};

/** Forward function of a module written by the caller.
 *
 *  @param inputs   n_inputs borrowed tensors; a NULL stands for an input that was left out.
 *  @param outputs  to be filled with n_outputs new handles, which the library takes over, also
 *                  those filled before the function fails. */
typedef nxd_status_t (*nxd_forward_fn)(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                       size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs,
                                       void* user_data);

/** Makes a module with the caller's forward function.  [local]
 *
 *  @param class_name  such as "MyBlock"; copied.
 *  @param forward     called by nxd_module_forward; NULL for a mere container.
 *  @param destroy     called with user_data when the module is gone; may be NULL. On failure it is
 *                     not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_create(nxd_context_t* ctx, const char* class_name,
                                       nxd_forward_fn forward, void* user_data,
                                       nxd_destroy_fn destroy, nxd_module_t** out_module);

/** Releases a handle; a module lives as long as a handle or a parent refers to it.  [local]
 *  @since 0.1 */
NXD_API void nxd_module_destroy(nxd_module_t* module);

/** Adds a child; the parent keeps it alive.  [local]
 *
 *  @param name   no dots, not empty, not taken by another child or parameter.
 *  @return NXD_OK; INVALID_ARGUMENT (name taken, other context, or a cycle).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_add_child(nxd_module_t* parent, const char* name,
                                          nxd_module_t* child);

/** How a parameter of the caller's is sharded and initialised. */
typedef struct nxd_parameter_options {
  size_t struct_size;
  nxd_dtype_t dtype;          /**< F32 (0), F64 or BF16 */
  int32_t shard_dim_plus_one; /**< 0: replicated; d + 1: dimension d is split over tensor-parallel
                                 ranks */
  int32_t sequence_parallel;  /**< 1: its gradient is partial per tensor-parallel rank and summed */
  nxd_init_t init;            /**< DEFAULT: zeros */
  double init_a;
  double init_b;
  nxd_device_t device; /**< META: without values until nxd_move_model_to_device or nxd_pp_create */
  int32_t reserved;
} nxd_parameter_options_t;

#define NXD_PARAMETER_OPTIONS_INIT                                                    \
  {                                                                                   \
    sizeof(nxd_parameter_options_t), NXD_DTYPE_F32, 0, 0, NXD_INIT_DEFAULT, 0.0, 0.0, \
        NXD_DEVICE_CPU, 0                                                             \
  }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_options_init(nxd_parameter_options_t* options, size_t size);

/** Adds a parameter to a module.  [local]
 *
 *  @param global_shape  sizes of the whole parameter; a split dimension must divide.
 *  @param[out] out_parameter  borrowed from the module; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_add_parameter(nxd_module_t* module, const char* name,
                                              const int64_t* global_shape, int32_t ndim,
                                              const nxd_parameter_options_t* options,
                                              nxd_parameter_t** out_parameter);

/** Makes a parameter of one module stand for another's as well; the first is the owner, and the
 *  second name leads to it.  [local]
 *
 *  @param root         module that both paths start at.
 *  @param owner_path   such as "embed.weight".
 *  @param alias_path   such as "head.weight"; same global shape and sharding.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_tie(nxd_module_t* root, const char* owner_path,
                                    const char* alias_path);

/** Runs the module.  [collective: the groups of its layers]
 *
 *  @param inputs   n_inputs borrowed tensors; NULL where an optional input is left out.
 *  @param outputs  room for n_outputs handles, which the caller destroys.
 *  @return NXD_OK; INVALID_ARGUMENT (number, shape or dtype of the inputs); TIMEOUT; PEER_LOST;
 *          what a callback returned.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_forward(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                        size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs);

/** One run of a module that a framework with its own differentiation can go back through. */
typedef struct nxd_tape nxd_tape_t;

/** Runs the module and keeps what its backward needs.  [collective: the groups of its layers]
 *
 *  Inputs of a float dtype are differentiated; what was recorded of them before is not.
 *  @param[out] out_tape  the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_forward_tape(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                             size_t n_inputs, nxd_tensor_t** outputs,
                                             size_t n_outputs, nxd_tape_t** out_tape);

/** Vector-Jacobian product: adds to the parameters' gradients and gives those of the inputs.
 *  [collective: the groups of its layers]
 *
 *  Gradients of replicated outputs are replicated, not partial; so are those given back.
 *  @param grad_outputs  one per output, of its shape; NULL: zero.
 *  @param[out] out_grad_inputs  room for one per input, which the caller destroys; NULL where an
 *                               input has no gradient.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (the tape was used already); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tape_backward(nxd_tape_t* tape, nxd_tensor_t* const* grad_outputs,
                                       size_t n_outputs, nxd_tensor_t** out_grad_inputs,
                                       size_t n_inputs);

/** Releases the tape and what it kept.  [local]
 *  @since 0.1 */
NXD_API void nxd_tape_destroy(nxd_tape_t* tape);

/** Class name of the module, such as "ColumnParallelLinear"; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_class_name(nxd_module_t* module, const char** out_name);

/** A module below this one by its dotted path; "" is the module itself. Borrowed.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (no such module; near names are in the message).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_module(nxd_module_t* root, const char* path,
                                           nxd_module_t** out_module);

/** Number of direct children.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_child_count(nxd_module_t* module, size_t* out_count);

/** A direct child and its name, in order of addition; both borrowed, either may be NULL.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_child(nxd_module_t* module, size_t index,
                                          nxd_module_t** out_child, const char** out_name);

/** Switches the module and all below it between training (1) and evaluation (0): dropout.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_set_training(nxd_module_t* module, int32_t training);

/** Draws all parameters of the tree anew, with canonical names that start at this module.  [local]
 *
 *  Built-in layers are initialised when they are made, under the name their options give; a model
 *  put together from them is initialised by one call on its root.
 *  @param seed  the same on all ranks.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_initialize(nxd_module_t* root, uint64_t seed);

/** Moves all parameters to a device, in place; they keep their attributes, hooks and handles.
 *  [local]
 *
 *  To the CPU: those on the meta device get the initial values of their names and seed, as if they
 *  had been made on the CPU; others keep theirs. To the meta device: values and gradients are
 *  forgotten, and their memory is free.
 *  @return NXD_OK; UNSUPPORTED (NXD_DEVICE_NEURON); INVALID_STATE (to the meta device: a ddp holds
 *          a parameter's values or gradients; none is changed).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_move_model_to_device(nxd_module_t* root, nxd_device_t device);

/** Number of parameters of the tree; tied ones count once.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_parameter_count(nxd_module_t* root, size_t* out_count);

/** A parameter of the tree by index, in a fixed order, and its name from this root.  [local]
 *
 *  @param[out] out_parameter  borrowed from its module; may be NULL.
 *  @param[out] out_name       borrowed, valid until the tree changes; may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_parameter(nxd_module_t* root, size_t index,
                                              nxd_parameter_t** out_parameter,
                                              const char** out_name);

/** A parameter of the tree by its name from this root, tied names included.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT (no such parameter; near names are in the message).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_find_parameter(nxd_module_t* root, const char* name,
                                               nxd_parameter_t** out_parameter);

/** This rank's shard; borrowed from the parameter.  [local]
 *
 *  Its gradient is read and set by nxd_tensor_get_grad and nxd_tensor_set_grad.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_tensor(nxd_parameter_t* parameter,
                                              nxd_tensor_t** out_tensor);

/** Shape of the whole parameter; as nxd_tensor_get_shape.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_global_shape(nxd_parameter_t* parameter, int64_t* shape,
                                                    size_t cap, size_t* out_ndim);

/** Which part of the whole this rank has.  [local]
 *
 *  @param[out] out_dim      split dimension, or -1 for a replicated parameter.
 *  @param begins, ends      room for cap ranges of indices in that dimension, in local order; may
 *                           be NULL when cap is 0.
 *  @param[out] out_ranges   number of ranges.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_shard(nxd_parameter_t* parameter, int32_t* out_dim,
                                             int64_t* begins, int64_t* ends, size_t cap,
                                             size_t* out_ranges);

/** Overwrites this rank's shard with its part of the whole parameter's value.  [local]
 *  @param whole  tensor of the global shape, any float dtype.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_whole(nxd_parameter_t* parameter, nxd_tensor_t* whole);

/** The whole parameter's value.  [collective: tensor-parallel group]
 *  @param[out] out_whole  the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_whole(nxd_parameter_t* parameter, nxd_tensor_t** out_whole);

/** The whole parameter's gradient, as far as it is finished.  [collective: tensor-parallel group]
 *  @param[out] out_whole  the caller destroys it; NULL with NXD_OK when there is no gradient.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_get_whole_grad(nxd_parameter_t* parameter,
                                                  nxd_tensor_t** out_whole);

/** Freezes (0) or frees (1) a parameter.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_trainable(nxd_parameter_t* parameter, int32_t trainable);

/** Called when a backward pass has added to the parameter's gradient. */
typedef nxd_status_t (*nxd_grad_hook_fn)(nxd_parameter_t* parameter, void* user_data);

/** Sets the parameter's gradient hook; NULL removes it.  [local]
 *  @param destroy  called with user_data when the hook is replaced or the parameter is gone; may be
 *                  NULL. On failure it is not called.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (a frozen parameter without a hook).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parameter_set_grad_hook(nxd_parameter_t* parameter, nxd_grad_hook_fn hook,
                                                 void* user_data, nxd_destroy_fn destroy);

/** Forgets the gradients of all parameters of the tree.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_zero_grad(nxd_module_t* root);

/** What a load did not match. */
typedef struct nxd_load_report nxd_load_report_t;

/** Ways not to match. */
typedef int32_t nxd_mismatch_t;
enum {
  NXD_MISMATCH_INVALID = -1,
  NXD_MISMATCH_MISSING = 0,    /**< a parameter that the file lacks */
  NXD_MISMATCH_UNEXPECTED = 1, /**< a tensor that the model lacks */
  NXD_MISMATCH_SHAPE = 2       /**< a tensor of another shape than the parameter's */
};

/** Number of mismatches of a kind.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_load_report_get_count(nxd_load_report_t* report, nxd_mismatch_t kind,
                                               size_t* out_count);

/** Name of a mismatch; borrowed from the report.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_load_report_get_name(nxd_load_report_t* report, nxd_mismatch_t kind,
                                              size_t index, const char** out_name);

/** Releases the report.  [local]
 *  @since 0.1 */
NXD_API void nxd_load_report_destroy(nxd_load_report_t* report);

/** Reads parameters from safetensors; each rank reads its own shards only.  [local]
 *
 *  @param path    a .safetensors file, or a directory with model.safetensors or
 *                 model.safetensors.index.json; with both the file is read, as in transformers.
 *  @param strict  1: any mismatch is INVALID_ARGUMENT and no parameter is changed.
 *  @param[out] out_report  also given when strict fails; the caller destroys it; may be NULL.
 *  @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_load_safetensors(nxd_module_t* root, const char* path,
                                                 int32_t strict, nxd_load_report_t** out_report);

/** Writes the whole parameters, those of all stages, as one safetensors file, on the first rank of
 *  data-parallel copy 0; crash-safe.  [collective: tensor- and pipeline-parallel groups]
 *
 *  @param path  file; replaced when complete. An index beside a model.safetensors, which is that of
 *               an older save, is removed then.
 *  @return NXD_OK on all ranks; IO on all ranks when the writer failed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_save_safetensors(nxd_module_t* root, const char* path);

/* ---------------------------------------------------------------------------------------------
 * 13. Layers (libnxd)
 *
 * Layers are modules over the tensor-parallel group of the context, which must be initialised. With
 * sequence_parallel, activations between layers are slices of dimension sequence_dim, equal on all
 * ranks; the default dimension is 0, for inputs of shape [sequence, batch, hidden].
 * Linear weights are stored [out_features, in_features]; Y = X W^T + b.
 * ------------------------------------------------------------------------------------------- */

/** Options of nxd_parallel_embedding_create. */
typedef struct nxd_embedding_options {
  size_t struct_size;
  const char* name;  /**< canonical name of the layer for its initial weights; NULL: "" */
  nxd_dtype_t dtype; /**< of the weight: F32 (0), F64, BF16 */
  nxd_device_t device;
  nxd_init_t init;         /**< DEFAULT: normal(0, 1) */
  int32_t has_padding_idx; /**< 1: padding_idx gets no gradient, and starts as zeros */
  double init_a;
  double init_b;
  int64_t padding_idx;
  int32_t shard_across_embedding; /**< 1: embedding_dim is split instead of the vocabulary */
  int32_t sequence_parallel;      /**< 1: the output is scattered along sequence_dim */
  int32_t sequence_dim;           /**< of the output */
  int32_t reserved;
} nxd_embedding_options_t;

#define NXD_EMBEDDING_OPTIONS_INIT                                                             \
  {                                                                                            \
    sizeof(nxd_embedding_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, NXD_INIT_DEFAULT, 0, \
        0.0, 0.0, 0, 0, 0, 0, 0                                                                \
  }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_embedding_options_init(nxd_embedding_options_t* options, size_t size);

/** Embedding table split over the tensor-parallel ranks.  [local]
 *
 *  Forward: ids [...], I64, the same on all ranks -> [..., embedding_dim]. Ids outside of the table
 *  are INVALID_ARGUMENT on every rank.
 *  @param num_embeddings  rows; must divide by the group's size (embedding_dim with
 *                         shard_across_embedding).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_embedding_create(nxd_context_t* ctx, int64_t num_embeddings,
                                                   int64_t embedding_dim,
                                                   const nxd_embedding_options_t* options,
                                                   nxd_module_t** out_module);

/** Options of the two parallel linear layers. */
typedef struct nxd_linear_options {
  size_t struct_size;
  const char* name;  /**< canonical name of the layer for its initial weights; NULL: "" */
  nxd_dtype_t dtype; /**< of weight and bias: F32 (0), F64, BF16 */
  nxd_device_t device;
  nxd_toggle_t bias;          /**< default on */
  nxd_toggle_t gather_output; /**< column only; default on, off with sequence_parallel */
  nxd_toggle_t reduce_output; /**< row only; default on; off: the partial sums are the output */
  int32_t
      input_is_parallel; /**< row only; 1: the input is split along its last dimension already */
  int32_t sequence_parallel;
  int32_t sequence_dim;
  int32_t skip_bias_add;      /**< 1: a second output gives the bias, which is not added */
  int32_t keep_master_weight; /**< 1: nxd_module_get_master_weight gives the whole initial weight */
  int32_t stride;  /**< 0: 1; blocks per rank of the split dimension, for fused weights */
  nxd_init_t init; /**< DEFAULT: uniform(-1/sqrt(in), 1/sqrt(in)), the bias too */
  double init_a;
  double init_b;
} nxd_linear_options_t;

#define NXD_LINEAR_OPTIONS_INIT                                                                   \
  {                                                                                               \
    sizeof(nxd_linear_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        NXD_INIT_DEFAULT, 0.0, 0.0                                                                \
  }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_options_init(nxd_linear_options_t* options, size_t size);

/** Linear layer whose output features are split over the tensor-parallel ranks.  [local]
 *
 *  Forward: x [..., in_features], replicated (or a slice of sequence_dim with sequence_parallel)
 *  -> [..., out_features / tp], or [..., out_features] with gather_output.
 *  @return NXD_OK; INVALID_ARGUMENT (out_features does not divide; gather_output together with
 *          sequence_parallel); INVALID_STATE (model parallel not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_column_parallel_linear_create(nxd_context_t* ctx, int64_t in_features,
                                                       int64_t out_features,
                                                       const nxd_linear_options_t* options,
                                                       nxd_module_t** out_module);

/** Linear layer whose input features are split over the tensor-parallel ranks.  [local]
 *
 *  Forward: x [..., in_features / tp] with input_is_parallel, else [..., in_features], which is
 *  split -> [..., out_features], summed over ranks in f32 or wider, or this rank's slice of the sum
 *  along sequence_dim with sequence_parallel.
 *  @return NXD_OK; INVALID_ARGUMENT (in_features does not divide; sequence_parallel without
 *          input_is_parallel); INVALID_STATE.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_row_parallel_linear_create(nxd_context_t* ctx, int64_t in_features,
                                                    int64_t out_features,
                                                    const nxd_linear_options_t* options,
                                                    nxd_module_t** out_module);

/** The whole initial weight of a layer made with keep_master_weight; borrowed.  [local]
 *  @return NXD_OK; INVALID_STATE (not kept).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_master_weight(nxd_module_t* module, nxd_tensor_t** out_weight);

/** Options of the norms. */
typedef struct nxd_norm_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  double eps;          /**< 0: 1e-5 */
  nxd_toggle_t affine; /**< default on: a weight (and a bias, LayerNorm) */
  nxd_toggle_t bias;   /**< LayerNorm only; default on */
  int32_t
      sequence_parallel; /**< 1: inputs are slices, and the gradients of its parameters partial */
  int32_t reserved;
} nxd_norm_options_t;

#define NXD_NORM_OPTIONS_INIT \
  { sizeof(nxd_norm_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0.0, 0, 0, 0, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_norm_options_init(nxd_norm_options_t* options, size_t size);

/** Layer normalisation over the last dimension (Ba et al. 2016).  [local]
 *  Forward: x [..., size], and optionally a residual to add to it first -> the normalised sum and,
 *  when two outputs are asked for, the sum. The weight starts as ones, the bias as zeros.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_norm_create(nxd_context_t* ctx, int64_t size,
                                           const nxd_norm_options_t* options,
                                           nxd_module_t** out_module);

/** Root-mean-square normalisation over the last dimension (Zhang and Sennrich 2019).  [local]
 *
 *  Forward: as nxd_layer_norm_create's, computed in f32 or wider. The weight starts as ones.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rms_norm_create(nxd_context_t* ctx, int64_t size,
                                         const nxd_norm_options_t* options,
                                         nxd_module_t** out_module);

/** Scaling of rotary frequencies, as in Hugging Face configurations. */
typedef int32_t nxd_rope_t;
enum {
  NXD_ROPE_INVALID = -1,
  NXD_ROPE_DEFAULT = 0,
  NXD_ROPE_LINEAR = 1,
  NXD_ROPE_DYNAMIC = 2, /**< NTK-aware, by the length of the input */
  NXD_ROPE_YARN = 3,    /**< Peng et al. 2023 */
  NXD_ROPE_LLAMA3 = 4
};

/** Rotary position embedding (Su et al. 2021): pairs are the two halves of a head. */
typedef struct nxd_rope_options {
  size_t struct_size;
  nxd_rope_t type;
  int32_t rotary_dim;                       /**< leading features that turn; 0: the whole head */
  double theta;                             /**< 0: 10000 */
  double factor;                            /**< of LINEAR, DYNAMIC, YARN and LLAMA3; 0: 1 */
  double low_freq_factor;                   /**< LLAMA3; 0: 1 */
  double high_freq_factor;                  /**< LLAMA3; 0: 4 */
  double beta_fast;                         /**< YARN; 0: 32 */
  double beta_slow;                         /**< YARN; 0: 1 */
  double attention_factor;                  /**< YARN; 0: 0.1 ln(factor) + 1 */
  int64_t original_max_position_embeddings; /**< DYNAMIC, YARN, LLAMA3 */
} nxd_rope_options_t;

#define NXD_ROPE_OPTIONS_INIT \
  { sizeof(nxd_rope_options_t), NXD_ROPE_DEFAULT, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rope_options_init(nxd_rope_options_t* options, size_t size);

/** Rotates query or key heads by their position.  [local]
 *
 *  Forward: x [batch, sequence, heads, head_dim] -> the same shape; position i of the sequence is
 * i.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rotary_embedding_create(nxd_context_t* ctx, int64_t head_dim,
                                                 const nxd_rope_options_t* options,
                                                 nxd_module_t** out_module);

/** Options of nxd_attention_create. */
typedef struct nxd_attention_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  int64_t n_kv_heads;             /**< 0: n_heads */
  int64_t head_dim;               /**< 0: hidden / n_heads */
  const nxd_rope_options_t* rope; /**< NULL: no rotary embedding; copied */
  nxd_toggle_t causal;            /**< default on */
  nxd_toggle_t qkv_bias;          /**< default off */
  nxd_toggle_t output_bias;       /**< default off */
  int32_t sequence_parallel;
  nxd_init_t init; /**< DEFAULT: as the linear layers */
  int32_t reserved;
  double init_a;
  double init_b;
} nxd_attention_options_t;

#define NXD_ATTENTION_OPTIONS_INIT                                                                \
  {                                                                                               \
    sizeof(nxd_attention_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, NULL, 0, 0, 0, 0, \
        NXD_INIT_DEFAULT, 0, 0.0, 0.0                                                             \
  }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_attention_options_init(nxd_attention_options_t* options, size_t size);

/** Self-attention with grouped key and value heads (Ainslie et al. 2023), heads split over the
 *  tensor-parallel ranks.  [local]
 *
 *  Parameters q_proj, k_proj, v_proj, o_proj. With fewer key heads than ranks, each is held by
 *  several ranks and its gradients are summed by nxd_finish_gradients.
 *  Forward: x [batch, sequence, hidden], or a slice of [sequence, batch, hidden] with
 *  sequence_parallel; optionally a key mask [batch, sequence], I64 or BOOL, 0 where a position is
 *  padding -> the shape of x.
 *  @param n_heads  must divide by the group's size; n_kv_heads must divide it or be divided by it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_attention_create(nxd_context_t* ctx, int64_t hidden, int64_t n_heads,
                                          const nxd_attention_options_t* options,
                                          nxd_module_t** out_module);

/** Activation of a gated MLP. */
typedef int32_t nxd_activation_t;
enum {
  NXD_ACTIVATION_INVALID = -1,
  NXD_ACTIVATION_SILU = 0,
  NXD_ACTIVATION_GELU = 1,
  NXD_ACTIVATION_GELU_TANH = 2,
  NXD_ACTIVATION_RELU = 3
};

/** Options of nxd_gated_mlp_create. */
typedef struct nxd_mlp_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  nxd_activation_t activation;
  nxd_toggle_t bias;         /**< default off */
  int32_t sequence_parallel; /**< 1: x is a slice of dimension 0 */
  nxd_init_t init;           /**< DEFAULT: as the linear layers */
  double init_a;
  double init_b;
} nxd_mlp_options_t;

#define NXD_MLP_OPTIONS_INIT \
  { sizeof(nxd_mlp_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, 0, 0, 0.0, 0.0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_mlp_options_init(nxd_mlp_options_t* options, size_t size);

/** down_proj(activation(gate_proj(x)) * up_proj(x)), split over the tensor-parallel ranks
 *  (Shazeer 2020).  [local]
 *
 *  Forward: x [..., hidden] -> [..., hidden].
 *  @since 0.1 */
NXD_API nxd_status_t nxd_gated_mlp_create(nxd_context_t* ctx, int64_t hidden, int64_t intermediate,
                                          const nxd_mlp_options_t* options,
                                          nxd_module_t** out_module);

/** Dropout whose bits depend on the seed, the layer's name, the global index of each element, the
 *  step and the microbatch, and on nothing else.  [local]
 *
 *  Forward: x, any shape -> the same shape. In training, elements are zeroed with probability p and
 *  the others scaled by 1 / (1 - p); in evaluation x itself.
 *  @param name       canonical name of the site; sites with one name draw the same bits. Replaced
 * by the module's path in nxd_module_initialize.
 *  @param shard_dim  dimension of x that is split over the tensor-parallel ranks, so that each rank
 *                    drops its own part of the whole; -1: x is replicated and dropped alike.
 *  @return NXD_OK; INVALID_ARGUMENT (p not in [0, 1)).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_dropout_create(nxd_context_t* ctx, double p, const char* name,
                                        int32_t shard_dim, nxd_module_t** out_module);

/* ---------------------------------------------------------------------------------------------
 * 14. Region mappings and losses (libnxd)
 *
 * Differentiable moves between what tensor-parallel ranks hold alike and what they hold in parts.
 * Each takes x and gives a new handle that the caller destroys; with one rank it is x itself.
 * ------------------------------------------------------------------------------------------- */

/** Identity; its backward sums the gradients of all ranks.  [collective: tensor-parallel group, in
 *  backward]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_copy_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                               nxd_tensor_t** out_y);

/** Sum over ranks; its backward is the identity.  [collective: tensor-parallel group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                   nxd_tensor_t** out_y);

/** This rank's part of the last dimension; its backward gathers.  [collective: tensor-parallel
 *  group, in backward]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_scatter_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                  nxd_tensor_t** out_y);

/** All ranks' parts side by side in the last dimension; its backward takes this rank's part.
 *  [collective: tensor-parallel group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_gather_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                   nxd_tensor_t** out_y);

/** This rank's part of a dimension; its backward gathers.  [collective: tensor-parallel group, in
 *  backward]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                    int32_t dim, nxd_tensor_t** out_y);

/** All ranks' parts along a dimension.  [collective: tensor-parallel group]
 *
 *  @param to_model_parallel  1: what follows is split over ranks, so the backward sums and scatters
 *                            the gradients; 0: what follows is replicated, so it takes this rank's
 *                            part.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_gather_from_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                     int32_t dim, int32_t to_model_parallel,
                                                     nxd_tensor_t** out_y);

/** This rank's part, along a dimension, of the sum over ranks; its backward gathers.  [collective:
 *  tensor-parallel group]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                           int32_t dim, nxd_tensor_t** out_y);

/** What a loss gives back. */
typedef int32_t nxd_reduction_t;
enum {
  NXD_REDUCTION_INVALID = -1,
  NXD_REDUCTION_MEAN = 0, /**< over valid tokens; 0 when there is none */
  NXD_REDUCTION_SUM = 1,
  NXD_REDUCTION_NONE = 2 /**< one value per token */
};

/** Formula of label smoothing. */
typedef int32_t nxd_smoothing_t;
enum {
  NXD_SMOOTHING_INVALID = -1,
  NXD_SMOOTHING_TORCH = 0,   /**< (1 - s) nll + s mean of -log p, as torch's cross_entropy */
  NXD_SMOOTHING_MEGATRON = 1 /**< the same with s V / (V - 1), over the whole vocabulary V */
};

/** Options of nxd_parallel_cross_entropy. */
typedef struct nxd_cross_entropy_options {
  size_t struct_size;
  double label_smoothing; /**< 0 to 1 */
  nxd_smoothing_t smoothing;
  nxd_reduction_t reduction;
  int32_t has_ignore_index; /**< 1: ignore_index counts; 0: -100 */
  int32_t reserved;
  int64_t ignore_index;
} nxd_cross_entropy_options_t;

#define NXD_CROSS_ENTROPY_OPTIONS_INIT \
  { sizeof(nxd_cross_entropy_options_t), 0.0, NXD_SMOOTHING_TORCH, NXD_REDUCTION_MEAN, 0, 0, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_cross_entropy_options_init(nxd_cross_entropy_options_t* options,
                                                    size_t size);

/** Cross entropy on logits whose vocabulary is split over ranks; never gathers it.  [collective:
 *  tensor-parallel group]
 *
 *  @param logits    [..., vocabulary / tp], F32, F64 or BF16; left unchanged.
 *  @param labels    [...], I64, the same on all ranks; ignored where equal to ignore_index.
 *  @param[out] out_loss  scalar, or [...] with REDUCTION_NONE; F32, or F64 for F64 logits. The
 *                        caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, a label outside of the vocabulary); TIMEOUT;
 *          PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_parallel_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* logits,
                                                nxd_tensor_t* labels,
                                                const nxd_cross_entropy_options_t* options,
                                                nxd_tensor_t** out_loss);

/** Cross entropy of the logits x weight^T, whose vocabulary is split over ranks, in blocks of
 *  tokens: the logits of one block exist at a time. Gradients of x and weight are formed with the
 *  loss, where autograd will ask for them, so that backward only scales them; it cannot be
 *  differentiated again. With REDUCTION_NONE, F64 or plain kernels all logits are made, as by
 *  nxd_parallel_cross_entropy.  [collective: tensor-parallel group]
 *
 *  @param x       [..., features], F32, F64 or BF16: the same on all ranks, or this rank's part
 *                 along sequence_dim. Its gradient is summed over ranks.
 *  @param weight  [vocabulary / tp, features], of the dtype of x: this rank's rows.
 *  @param labels  the whole x's shape without features, I64, the same on all ranks; ignored where
 *                 equal to ignore_index.
 *  @param sequence_dim  dimension of x of which ranks hold parts (sequence parallelism), not the
 *                       last; -1: none.
 *  @param[out] out_loss  as that of nxd_parallel_cross_entropy.
 *  @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, a label outside of the vocabulary); TIMEOUT;
 *          PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* x,
                                              nxd_tensor_t* weight, nxd_tensor_t* labels,
                                              int32_t sequence_dim,
                                              const nxd_cross_entropy_options_t* options,
                                              nxd_tensor_t** out_loss);

/* ---------------------------------------------------------------------------------------------
 * 15. Models (libnxd)
 * ------------------------------------------------------------------------------------------- */

/** Options of nxd_model_create. */
typedef struct nxd_model_options {
  size_t struct_size;
  nxd_dtype_t dtype; /**< of the parameters: F32 (0), F64, BF16 */
  nxd_device_t device;
  int32_t sequence_parallel; /**< 1: norms and residuals on slices of the sequence */
  int32_t reserved;
} nxd_model_options_t;

#define NXD_MODEL_OPTIONS_INIT \
  { sizeof(nxd_model_options_t), NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0 }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_model_options_init(nxd_model_options_t* options, size_t size);

/** Builds a model from a Hugging Face configuration, initialised with the context's seed.  [local]
 *
 *  Families: model_type "llama" and "gpt2". Parameter names and shapes are Hugging Face's.
 *  Forward inputs: ids [batch, sequence], I64; optionally labels of the same shape, -100 where a
 *  token is not predicted, which are shifted inside as Hugging Face does; optionally a key mask
 *  [batch, sequence], 0 where a position is padding.
 *  Outputs: without labels the logits [batch, sequence, vocabulary / tp]; with labels the mean
 *  loss over valid tokens, and as a second output, if asked for, the logits. A GPT-2's vocabulary
 *  is rounded up to a multiple of tp; logits of ids beyond it are below -1e30.
 *  With sequence_parallel the sequence must divide by the tensor-parallel size.
 *  @param config_json  text of config.json.
 *  @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range, sizes that do not
 *          divide); UNSUPPORTED (model_type, activation or rope_type unknown; the message lists the
 *          known ones; or a field that makes another model); INVALID_STATE (model parallel not
 *          initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_model_create(nxd_context_t* ctx, const char* config_json,
                                      const nxd_model_options_t* options, nxd_module_t** out_model);

/** Builds a model from a directory's config.json and loads its safetensors, strictly.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_model_from_pretrained(nxd_context_t* ctx, const char* directory,
                                               const nxd_model_options_t* options,
                                               nxd_module_t** out_model);

/** Floating-point operations of one training step of a built-in model, all ranks together: 6 per
 *  matrix parameter and token, and 6 layers * sequence * attention width per token for causal
 *  attention; the input embedding counts nothing.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_model_get_step_flops(nxd_module_t* model, int64_t batch, int64_t sequence,
                                              double* out_flops);

/* ---------------------------------------------------------------------------------------------
 * 16. Training (libnxd)
 * ------------------------------------------------------------------------------------------- */

/** Finishes the gradients of a model after backward: sums those of norms under sequence parallelism
 *  and of replicated key and value heads, reduces over data-parallel ranks, scales, takes the norm
 *  of the whole model and clips.  [collective: tensor-, pipeline- and data-parallel groups]
 *
 *  Every rank calls it once per step, with gradients for the same parameters.
 *  @param[out] out_norm  of all gradients before clipping, with the same bits on all ranks; may be
 *                        NULL.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (a norm that is not finite: gradients are left
 *          unclipped; or a ddp of the model's, which nxd_ddp_finish is for); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_finish_gradients(nxd_module_t* root, const nxd_finish_options_t* options,
                                          double* out_norm);

/** Data parallelism over a tree's trainable parameters, over the data-parallel group.
 *  [collective: the data-parallel group]
 *
 *  Gradients become views into the buckets, and buckets are reduced during backward passes, in the
 *  reverse order of the parameters. With zero_stage 1 parameters become views as well. One ddp at a
 *  time has a parameter; when it and its optimizers are gone, the model has its tensors back.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_ddp_create(nxd_module_t* root, const nxd_ddp_options_t* options,
                                    nxd_ddp_t** out_ddp);

/** AdamW over all trainable parameters of a tree (Loshchilov and Hutter 2019).  [local]
 *
 *  State is kept in f32 (f64 for F64 parameters), sized like this rank's shards.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_adamw_create(nxd_module_t* root, const nxd_adamw_options_t* options,
                                      nxd_optimizer_t** out_optimizer);

/** SGD over all trainable parameters of a tree.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_sgd_create(nxd_module_t* root, const nxd_sgd_options_t* options,
                                    nxd_optimizer_t** out_optimizer);

/** A caller's own update rule over all trainable parameters of a tree.  [local]
 *  @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_custom_optimizer_create(nxd_module_t* root,
                                                 const nxd_custom_optimizer_options_t* options,
                                                 nxd_optimizer_t** out_optimizer);

/** Weights that make mean losses of microbatches add up to the mean over all valid tokens of the
 *  step: each one's valid labels divided by those of all microbatches of all data-parallel ranks.
 *  [collective: the data-parallel group]
 *
 *  Multiply each loss by its weight, or give the weight as its gradient to nxd_backward, and reduce
 *  gradients with SUM.
 *  @param labels   [.., sequence] I64 each; NULL among them: no tokens.
 *  @param shifted  1: as models take them, whose first label of a row predicts nothing.
 *  @param[out] out_weights  n; all 0 when no rank has a valid label.
 *  @return NXD_OK; INVALID_ARGUMENT; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_loss_weights(nxd_context_t* ctx, nxd_tensor_t* const* labels, size_t n,
                                      int64_t ignore_index, int32_t shifted, double* out_weights);

/* ---------------------------------------------------------------------------------------------
 * 17. Pipelines of modules (libnxd)
 *
 * A model is traced, cut into stages, and run by a schedule. Parameters keep their names.
 * ------------------------------------------------------------------------------------------- */

/** A caller's own rule of tracing: whether a module that could be entered is called as a whole.
 * Built-in layers, and modules without children, always are. The same answers on all ranks.
 *
 *  @param path             from the root; of a module that is in no place of the tree its class.
 *  @param[in,out] is_leaf  comes with what leaf_modules and transformer_layer_class say, 0 or 1. */
typedef nxd_status_t (*nxd_leaf_fn)(nxd_module_t* module, const char* path, int32_t* is_leaf,
                                    void* user_data);

/** Gives a parameter on the meta device its first values; name is its path from the root, and
 * tensor this rank's shard, to be filled. */
typedef nxd_status_t (*nxd_param_init_fn)(nxd_parameter_t* parameter, const char* name,
                                          nxd_tensor_t* tensor, void* user_data);

/** Options of nxd_pp_create; the same on all ranks. Strings and lists are copied. */
typedef struct nxd_pp_options {
  size_t struct_size;
  int32_t num_microbatches;        /**< 0: 1; divides the batch, dimension 0 of every input */
  int32_t virtual_size;            /**< virtual_pipeline_size, chunks of each rank; 0: 1 */
  nxd_pp_schedule_kind_t schedule; /**< of training */
  nxd_pp_partition_t partition;
  nxd_pp_schedule_t* custom_schedule;  /**< instead of schedule; NULL: none */
  const char* transformer_layer_class; /**< a leaf, and what EVEN and COST count in; NULL: that
                                          of a built-in model */
  const char* const* pipeline_cuts;    /**< paths of modules, each the last of its stage */
  size_t n_cuts;
  const char* const* leaf_modules; /**< more leaves, by class name or by path */
  size_t n_leaf_modules;
  const char* const* input_names; /**< of the model's inputs; NULL: a built-in model's own,
                                     else "input_0" and so on */
  size_t n_input_names;
  int32_t n_outputs;   /**< of the model's forward; 0: 1 */
  int32_t loss_output; /**< which of them is the loss: a scalar */
  nxd_pp_loss_t loss;
  int32_t labels_input;               /**< with TOKENS: which input has the labels; 0: the one
                                         named "labels" */
  int64_t ignore_index;               /**< with TOKENS: of labels that do not count; 0: -100 */
  int32_t labels_shifted;             /**< with TOKENS: 1: labels are used as they are; 0: the
                                         first label of a row predicts nothing */
  int32_t broadcast_and_average_loss; /**< 1: every rank gets the loss of all data-parallel
                                         ranks; not with return_mb_loss */
  int32_t return_mb_loss;             /**< 1: losses of microbatches: nxd_pp_get_losses */
  int32_t keep_outputs;               /**< 1: a stage's outputs are kept until their backward;
                                         0: let go once sent (deallocate_pipeline_outputs) */
  nxd_param_init_fn param_init;       /**< for parameters on the meta device; NULL: the
                                         built-in initialisers, by seed and name */
  void* param_init_data;
  const char* trace_file_path; /**< the graph as text, or as DOT if it ends in ".dot";
                                  written on rank 0; NULL: not */
  nxd_leaf_fn leaf_rule;       /**< NULL: leaves are those named above */
  void* leaf_rule_data;        /**< used as long as the pipeline lives */
} nxd_pp_options_t;

#define NXD_PP_OPTIONS_INIT                                                                        \
  {                                                                                                \
    sizeof(nxd_pp_options_t), 1, 0, NXD_PP_SCHEDULE_DEFAULT, NXD_PP_PARTITION_DEFAULT, NULL, NULL, \
        NULL, 0, NULL, 0, NULL, 0, 0, 0, NXD_PP_LOSS_DEFAULT, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL,  \
        NULL, NULL                                                                                 \
  }

/** Fills options with defaults.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_options_init(nxd_pp_options_t* options, size_t size);

/** Traces a model, cuts it and keeps this rank's stages.  [collective: the pipeline-parallel group]
 *
 *  Parameters outside of this rank's stages lose their values; those inside that are on the meta
 *  device get theirs. Parameters that several stages share are made equal to their owner's, that of
 *  the first stage that has them, and their gradients are summed by every training run.
 *  @param model    the root; kept alive. Its forward runs once, on tensors without data: reading a
 *                  value fails, and the message names the module and the operation.
 *  @param inputs   examples of the inputs of one run, whose shapes and dtypes count: dimension 0 is
 *                  the batch. They may be on the meta device; NULL: left out in every run.
 *  @return NXD_OK; INVALID_ARGUMENT (names of cuts, leaves or inputs unknown: the nearest are
 * given; sizes that do not divide; a schedule that does not admit the shape); INVALID_STATE (model
 *          parallel not initialised; a value is read); UNSUPPORTED (an operator without a shape
 *          function); TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_create(nxd_module_t* model, nxd_tensor_t* const* inputs,
                                   size_t n_inputs, const nxd_pp_options_t* options,
                                   nxd_pp_t** out_pp);

/** Forwards and backwards of all microbatches of a batch.  [collective: the pipeline-parallel
 *  group, and the data-parallel group with a loss over tokens or broadcast_and_average_loss]
 *
 *  Gradients add to those there are, microbatch by microbatch, and are partial as after
 *  nxd_backward: a ddp given by nxd_pp_set_ddp reduces them as they become complete;
 *  nxd_optimizer_step or nxd_finish_gradients over nxd_pp_get_local_module completes them.
 *  @param inputs  those of nxd_pp_create, the same on all ranks of the pipeline; another batch or
 *                 sequence length makes the model be traced again.
 *  @param[out] out_loss  on the rank with the last stage, or with broadcast_and_average_loss
 *                        everywhere; else 0. May be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run_train(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t n_inputs,
                                      double* out_loss);

/** Forwards alone, without recording gradients, in evaluation mode.  [collective: as
 *  nxd_pp_run_train]
 *
 *  @param[out] out_loss  as of nxd_pp_run_train; 0 when the model gives no loss. May be NULL.
 *  @param outputs  filled, on the rank with the last stage, with n_outputs new handles: the model's
 *                  outputs of all microbatches, joined along dimension 0, scalars as a vector; the
 *                  caller destroys them. NULL elsewhere. outputs itself may be NULL when n_outputs
 *                  is 0.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_run_eval(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t n_inputs,
                                     double* out_loss, nxd_tensor_t** outputs, size_t n_outputs);

/** Losses of the last run's microbatches, on the rank with the last stage, by the rule of
 *  nxd_layout_get_group; with return_mb_loss.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_losses(nxd_pp_t* pp, double* losses, size_t cap, size_t* out_count);

/** Reduces gradients while runs go on: the ddp is off for all microbatches but the last. NULL: no
 *  more. The pipeline keeps nothing of it alive: take it away before it is destroyed.  [local]
 *  @param ddp  over nxd_pp_get_local_module.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_set_ddp(nxd_pp_t* pp, nxd_ddp_t* ddp);

/** The part of the model that this rank has: a tree of the same names whose modules and parameters
 *  are those of its stages; borrowed. Optimizers, ddps, saving and loading take it as a root.
 *  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_local_module(nxd_pp_t* pp, nxd_module_t** out_module);

/** Number of modules that this rank's stages call, and the path of each; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_local_module_count(nxd_pp_t* pp, size_t* out_count);

/** Path of a module that this rank's stages call; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_local_module_name(nxd_pp_t* pp, size_t index,
                                                  const char** out_name);

/** Number of cuts: one less than stages.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_cut_count(nxd_pp_t* pp, size_t* out_count);

/** Path of the module that a cut comes after; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_cut(nxd_pp_t* pp, size_t index, const char** out_name);

/** The traced graph as text; borrowed.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_graph_text(nxd_pp_t* pp, const char** out_text);

/** Number of modules and operators of this rank's stages whose weight gradients cannot be put off:
 *  in a zero-bubble schedule these are made together with their input gradients.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_unsplit_count(nxd_pp_t* pp, size_t* out_count);

/** Name of such a parameter's node; borrowed. Known after a first training run.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pp_get_unsplit_name(nxd_pp_t* pp, size_t index, const char** out_name);

/** Recomputes the activations of modules in their backward pass, instead of keeping them (Chen et
 *  al. 2016). Names and state do not change. May be called before or after nxd_pp_create.  [local]
 *
 *  @param names  paths from the root, or class names, of the modules; NULL with n_names 0: all
 *                transformer layers of a built-in model.
 *  @param on     1; 0: no longer.
 *  @return NXD_OK; INVALID_ARGUMENT (a name that is neither a path nor a class: the nearest are
 *          given).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_apply_checkpoint(nxd_module_t* root, const char* const* names,
                                          size_t n_names, int32_t on);

#ifdef __cplusplus
}
#endif

#endif /* NXD_H */
