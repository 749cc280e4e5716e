/** @file
 * Versions, status codes and errors, dtypes and devices, logging. */
#ifndef NXD_BASE_H
#define NXD_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || defined(SWIG)
#define NXD_API
#else
#define NXD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

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
  NXD_ERROR_TIMEOUT = -5,       /**< a peer, or a store, did not answer in time; after a call on a
                                     group the context's groups are poisoned */
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

/** On, off, or the default that the field's comment names. */
typedef int32_t nxd_toggle_t;
enum { NXD_TOGGLE_INVALID = -1, NXD_TOGGLE_DEFAULT = 0, NXD_TOGGLE_ON = 1, NXD_TOGGLE_OFF = 2 };

/** [local] ABI number of the loaded library: bindings compare it with NXD_ABI_VERSION first.
 *  @since 0.1 */
NXD_API uint32_t nxd_abi_version(void);

/** [local] Release of the loaded library, such as "0.1.0"; static storage.
 *  @since 0.1 */
NXD_API const char* nxd_version(void);

/** [local] Name of a status code, such as "INVALID_ARGUMENT"; "UNKNOWN" for other values.
 *  @since 0.1 */
NXD_API const char* nxd_status_string(nxd_status_t status);

/** [local] Message of this thread's last failed call; "" when none failed yet, never NULL.
 *
 *  Borrowed: valid until the next nxd call on this thread. A successful call leaves it as it is.
 *  @since 0.1 */
NXD_API const char* nxd_last_error(void);

/** [local] Copies this thread's last error message into buf, cut to cap - 1 bytes and terminated.
 *
 *  @param buf  may be NULL when cap is 0.
 *  @return bytes needed for the whole message and its terminator.
 *  @since 0.1 */
NXD_API size_t nxd_last_error_copy(char* buf, size_t cap);

/** [local] Leaves the message of a failure that a callback of the program's is about to return:
 *  `nxd_set_last_error(NXD_ERROR_USER, "no batch is left"); return NXD_ERROR_USER;`
 *
 *  The call that the callback is part of fails with this message, and so do the calls of other
 *  ranks that the failure ends; without it they only name the status. Both places know at which
 *  task, parameter or key it was. It is for the thread that the callback is called on. Where this
 *  thread's last error already has this status and message, what nxd_last_error_info says of it
 *  stays.
 *  @param status   what the callback returns; with NXD_OK nothing changes.
 *  @param message  UTF-8, copied, cut to 2047 bytes; NULL for none.
 *  @since 0.1 */
NXD_API void nxd_set_last_error(nxd_status_t status, const char* message);

/** The step that this rank's parameters belong to after an optimizer's step. */
typedef int32_t nxd_parameter_state_t;
enum {
  NXD_PARAMETER_STATE_INVALID = -1,
  NXD_PARAMETER_STATE_NONE = 0,   /**< no step was concerned */
  NXD_PARAMETER_STATE_OLD = 1,    /**< all are as before the step */
  NXD_PARAMETER_STATE_NEW = 2,    /**< all are as after it */
  NXD_PARAMETER_STATE_PARTIAL = 3 /**< some of each: of no use until they are loaded again */
};

/** The distributed call that failed. Strings are borrowed like nxd_last_error. */
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

/** [local] Structured form of this thread's last error.
 *
 *  @param[in,out] out_info  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_last_error_info(nxd_error_info_t* out_info);

/** [local] Destructor of a Python capsule of a DLPack tensor, for PyCapsule_New. It destroys what
 *  the capsule holds, unless a consumer took it over.
 *
 *  The destructor is in C because one that runs Python would disturb the error that a consumer
 *  raises when it rejects the tensor. Does nothing in a process without a Python interpreter.
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

/** [local] Replaces the process-wide log callback; NULL restores the default, lines on stderr.
 *
 *  @param user_data  kept until the callback is replaced, also where it is NULL; then
 *                    destroy(user_data) is called if destroy is not NULL. Not called when the
 *                    process ends before.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_log_set_callback(nxd_log_fn callback, void* user_data,
                                          nxd_destroy_fn destroy);

/** [local] Sets the process-wide log level; the default is NXD_LOG_LEVEL or WARN.
 *  @return NXD_OK; INVALID_ARGUMENT (level).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_log_set_level(nxd_log_level_t level);

/** [local] Versions of the library, its compiler, libtorch, Gloo and oneDNN as a JSON object.
 *
 *  Static storage.
 *  @since 0.1 */
NXD_API const char* nxd_build_info(void);

/** [local] Every environment variable the library reads, one per line: name, default, meaning.
 *
 *  Static storage.
 *  @since 0.1 */
NXD_API const char* nxd_environment_table(void);

/** Kind of a device. */
typedef int32_t nxd_device_t;
enum {
  NXD_DEVICE_INVALID = -1,
  NXD_DEVICE_CPU = 0,
  NXD_DEVICE_NEURON = 1, /**< holds no tensors: NXD_DEVICE_XLA runs by Neuron's plug-in */
  NXD_DEVICE_META = 2,   /**< shapes and dtypes, no values */
  NXD_DEVICE_XLA = 3     /**< records operators, and runs a step as one graph; see nxd/device.h */
};

#ifdef __cplusplus
}
#endif

#endif /* NXD_BASE_H */
