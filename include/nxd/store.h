/** @file
 * Stores, through which ranks find one another. */
#ifndef NXD_STORE_H
#define NXD_STORE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Key-value store through which ranks find one another. */
typedef struct nxd_store nxd_store_t;

/** [local] Store of the ranks that live on threads of this process.
 *
 *  @param[out] out_store  shared by the threads; the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_local(nxd_store_t** out_store);

/** [blocking] Store in a file that all ranks of this host or shared file system can write.
 *
 *  @param path  created when absent, and left in place by destroy. The path must be fresh for each
 *               job: keys of an earlier job are rejected by nxd_context_create.
 *  @return NXD_OK; INVALID_ARGUMENT; IO (cannot create or lock the file); CORRUPT (the file is no
 *          store); TIMEOUT (another process keeps the file locked).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_file(const char* path, nxd_store_t** out_store);

/** [blocking] Store served over TCP by one rank; speaks the protocol of torch's TCPStore.
 *
 *  With NXD_SECRET or NXD_SECRET_FILE both ends prove that they have the same secret; see
 *  docs/security.md.
 *
 *  @param host        name or address of the server, which listens there alone, or at all addresses
 *                     where host is none of this host's; see docs/security.md.
 *  @param port        1..65535; for the server 0 picks a free port, see nxd_store_get_port.
 *  @param is_server   1: serve in this process and connect to it; 0: connect.
 *  @param timeout_ms  0: 300000. Also bounds each later request. One that ends with TIMEOUT may
 *                     have been carried out by the server, or be so later; the next one connects
 *                     anew.
 *  @return NXD_OK; INVALID_ARGUMENT; IO (port in use, name not found, no store or
 *          one with another secret at the port); TIMEOUT (no server).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_tcp(const char* host, int32_t port, int32_t is_server,
                                          int64_t timeout_ms, nxd_store_t** out_store);

/** A store of the caller's own. Each callback returns NXD_OK or an error, which passes through.
 *  They are called from the thread that is inside the nxd call. Asynchronous work has its requests
 *  to the store made by threads that are inside nxd_work_wait, nxd_work_test or another call that
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

/** [local] Store over the caller's callbacks, which are copied; set, get and add are required.
 *
 *  On failure destroy is not called: user_data stays the caller's.
 *  @return NXD_OK; INVALID_ARGUMENT (a callback is NULL); ABI_MISMATCH.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_create_callbacks(const nxd_store_callbacks_t* callbacks,
                                                nxd_store_t** out_store);

/** [local] Port the store's server listens on, for stores made by nxd_store_create_tcp.
 *  @return NXD_OK; INVALID_ARGUMENT (not a TCP store).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_get_port(nxd_store_t* store, int32_t* out_port);

/** [blocking] Stores a copy of the value under the key.
 *  @param key    as for all calls, at most 64 KiB over TCP.
 *  @param value  size bytes, at most 1 GiB, and 64 MiB over TCP; may be NULL when size is 0.
 *  @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY (also: all values of a store over TCP would take
 *          more than 1 GiB; nothing is stored. A server of torch's loses the connection instead);
 *          IO, TIMEOUT (the store is lost or silent, or the file of a file store is kept locked);
 *          CORRUPT (that file is no store any more). The status of a store's callback passes
 *          through.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_set(nxd_store_t* store, const char* key, const void* value,
                                   size_t size);

/** [blocking] Waits for the key and copies its value.
 *
 *  @param timeout_ms   0 asks once and does not wait; over TCP at most the store's own bound.
 *  @param[out] out_size  bytes of the value, also when cap is too small.
 *  @return NXD_OK; INVALID_ARGUMENT (cap too small: nothing is copied);
 *          TIMEOUT (key absent, the store is silent, or the file of a file store is kept locked);
 *          IO (the store is lost); CORRUPT (as nxd_store_set).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_get(nxd_store_t* store, const char* key, int64_t timeout_ms,
                                   void* buf, size_t cap, size_t* out_size);

/** [blocking] Adds to an integer key that starts at 0, atomically. Sums wrap.
 *  @return NXD_OK; INVALID_ARGUMENT (the value is no integer; a server of torch's loses the
 *          connection instead); OUT_OF_MEMORY, CORRUPT (as nxd_store_set); IO, TIMEOUT (the
 *          store is lost or silent, or the file of a file store is kept locked).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_store_add(nxd_store_t* store, const char* key, int64_t amount,
                                   int64_t* out_value);

/** [local] Releases the store; contexts made from it keep what they need.
 *  @since 0.1 */
NXD_API void nxd_store_destroy(nxd_store_t* store);

#ifdef __cplusplus
}
#endif

#endif /* NXD_STORE_H */
