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
 * that share storage, a module or an autograd graph count as one object. nxd_context_abort and
 * nxd_group_abort are safe from any thread. After fork() every object is unusable in the child:
 * calls return NXD_ERROR_INVALID_STATE.
 *
 * Options structs start with struct_size; NULL options mean all defaults, and a field that is zero
 * means its default. Initialise with nxd_*_options_init or the NXD_*_OPTIONS_INIT macro.
 *
 * Sections 1 to 6 are in libnxd_core (pkg-config nxd-core) and need no libtorch; sections 7 and up
 * are in libnxd (pkg-config nxd), which includes libnxd_core. */
#ifndef NXD_H
#define NXD_H

#include <stddef.h>
#include <stdint.h>

#include "nxd/dlpack.h"

/* Copies of dlpack.h before 1.0 do not know it, and a program may have included one first. */
struct DLManagedTensorVersioned;

#if defined(_WIN32)
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

/** What a failed distributed call was doing. Strings are borrowed like nxd_last_error. */
typedef struct nxd_error_info {
  size_t struct_size;
  nxd_status_t status;
  int32_t root_rank;     /**< world rank that was lost or disagreed; -1 when none is to blame */
  uint64_t sequence;     /**< number of the collective in its group, from 0 */
  const char* group;     /**< name of the group; "" when no group was involved */
  const char* operation; /**< such as "all_reduce"; "" when no collective was involved */
} nxd_error_info_t;

/** Structured form of this thread's last error.  [local]
 *
 *  @param[in,out] out_info  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_last_error_info(nxd_error_info_t* out_info);

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
 *  @param host        name or address of the server.
 *  @param port        1..65535; for the server 0 picks a free port, see nxd_store_get_port.
 *  @param is_server   1: serve in this process and connect to it; 0: connect.
 *  @param timeout_ms  0: 300000. Also bounds each later get and wait.
 *  @return NXD_OK; INVALID_ARGUMENT; IO (port in use, name not found); TIMEOUT (no server).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_tcp(const char* host, int32_t port, int32_t is_server,
                                          int64_t timeout_ms, nxd_store_t** out_store);

/** A store of the caller's own. Each callback returns NXD_OK or an error, which passes through.
 *  They are called from the thread that is inside the nxd call. */
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
 *  @param value  size bytes; may be NULL when size is 0.
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

/** Adds to an integer key that starts at 0, atomically.  [local]
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
  /** RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun and nxdrun set them; without RANK
   *  and WORLD_SIZE a world of one rank. */
  NXD_RENDEZVOUS_ENVIRONMENT = 0,
  /** rank, size and store of the options. */
  NXD_RENDEZVOUS_STORE = 1
};

/** Options of nxd_context_create. */
typedef struct nxd_context_options {
  size_t struct_size;
  nxd_rendezvous_t rendezvous;
  int32_t rank;               /**< with RENDEZVOUS_STORE: 0..size-1 */
  int32_t size;               /**< with RENDEZVOUS_STORE: ranks in the world, at least 1 */
  int32_t local_rank;         /**< rank on this host; taken from LOCAL_RANK with ENVIRONMENT */
  nxd_store_t* store;         /**< with RENDEZVOUS_STORE: required when size > 1; kept alive */
  int64_t timeout_ms;         /**< bound of every collective; 0: NXD_TIMEOUT_MS or 1800000 */
  const char* interface_name; /**< network interface or address; NULL: NXD_SOCKET_IFNAME, or
                                 loopback when all ranks share one host */
  uint64_t seed;              /**< of initial weights and random bits; 0: NXD_SEED or 0 */
  int32_t plain_kernels; /**< 1: every layer through plain ATen operators; 0: NXD_PLAIN_KERNELS or
                            off */
  int32_t reserved;
} nxd_context_options_t;

#define NXD_CONTEXT_OPTIONS_INIT \
  { sizeof(nxd_context_options_t), NXD_RENDEZVOUS_ENVIRONMENT, 0, 0, 0, NULL, 0, NULL, 0, 0, 0 }

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

/** Leaves in agreement: waits for all ranks, then disconnects.  [collective: world]
 *
 *  Afterwards only getters and destroy work on the context.
 *  @return NXD_OK; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_finalize(nxd_context_t* ctx);

/** Leaves now; peers that wait for this rank get PEER_LOST.  [local]
 *  @since 0.1 */
NXD_API void nxd_context_destroy(nxd_context_t* ctx);

/** Makes every pending and later collective of this context return ABORTED; idempotent, from any
 *  thread.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_context_abort(nxd_context_t* ctx);

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
 *  pipeline x expert, must divide the world. */
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
 * Sums of 16-bit floats are added in f32 in rank order and rounded once. All sums are added in rank
 * order, so that results are the same on all ranks and from run to run.
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
 * 6. The machine: limits to compare with, memory
 * ------------------------------------------------------------------------------------------- */

/** Measures the machine's matrix-product peak: square products of size n, the median of a few runs
 *  on this thread's OpenMP team.  [local]
 *
 *  @param dtype  F32 or BF16.
 *  @param n      edge; 0: 2048.
 *  @param[out] out_flops  floating-point operations per second, 2 n^3 per product.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t n, double* out_flops);

/** Figures of the pool that tensors of fused layers are drawn from. */
typedef struct nxd_memory_stats {
  size_t struct_size;
  uint64_t bytes_in_use;   /**< in live tensors */
  uint64_t bytes_reserved; /**< held from the system, live or ready for reuse */
  uint64_t peak_bytes_in_use;
  uint64_t allocations;        /**< since the process started */
  uint64_t system_allocations; /**< of these, the ones that had to ask the system */
} nxd_memory_stats_t;

/** Reads the pool's figures.  [local]
 *  @param[in,out] out_stats  struct_size set by the caller.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_get_stats(nxd_memory_stats_t* out_stats);

/** Gives the pool's unused memory back to the system.  [local]
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_trim(void);

/*@ENGINE@*/

#ifdef __cplusplus
}
#endif

#endif /* NXD_H */
