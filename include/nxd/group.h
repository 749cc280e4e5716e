/** @file
 * Collectives over buffers the caller owns.
 *
 * Before any data moves, the ranks of a group compare operation, dtype, count, root, reduction and
 * sequence number. Where they differ, every rank gets INVALID_ARGUMENT naming both sides, no buffer
 * is changed and the group stays usable. A rank whose own arguments are bad gets INVALID_ARGUMENT
 * and so do its peers. After TIMEOUT or PEER_LOST the context's groups are poisoned: every later
 * call on them returns that first error.
 *
 * The order of additions depends on the group's ranks and hosts alone. 16-bit floats are added in
 * f32 and rounded once. Results are therefore the same on all ranks and from run to run. The order
 * is that of the ranks or, over a hierarchical transport, of the ranks of each host and then of the
 * hosts. Over Gloo, NXD_LARGE_GROUP (33) or more ranks, or hosts, are added as a balanced binary
 * tree over them. A reduce-scatter whose hosts have different numbers of ranks is one over Gloo. */
#ifndef NXD_GROUP_H
#define NXD_GROUP_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Reductions. */
typedef int32_t nxd_reduce_t;
enum {
  NXD_REDUCE_INVALID = -1,
  NXD_REDUCE_SUM = 0, /**< of integers it wraps, as their product does */
  NXD_REDUCE_AVG = 1, /**< sum divided by the group's size; floats only */
  NXD_REDUCE_MAX = 2, /**< NaN wins */
  NXD_REDUCE_MIN = 3, /**< NaN wins */
  NXD_REDUCE_PROD = 4
};

/** [collective: the listed ranks] Makes a group of some of the world's ranks.
 *
 *  @param ranks  world ranks in group order, each once, this rank among them; the same list in the
 *                same order on every member. Members make groups in the same order.
 *  @param name   part of messages, which have 63 bytes of it at most; NULL: "group".
 *  @param[out] out_group  the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (also of another member); INVALID_STATE (finalized, after
 *          fork); UNSUPPORTED (ranks of several hosts over SHARED_MEMORY); CORRUPT (the store);
 *          TIMEOUT (a member did not come, or has another list); PEER_LOST; ABORTED.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_create(nxd_context_t* ctx, const int32_t* ranks, size_t num_ranks,
                                      const char* name, nxd_group_t** out_group);

/** [local] Releases a group made by nxd_group_create; borrowed groups are left alone.
 *
 *  Works still pending on it end with ABORTED first, as nxd_group_abort ends them, which peers that
 *  wait then count as a loss; their buffers are then the caller's, and later calls of modules and
 *  ddps that use the group end with ABORTED too. Without pending works they keep the group, and go
 *  on.
 *  @since 0.1 */
NXD_API void nxd_group_destroy(nxd_group_t* group);

/** [local] Makes every pending and later call on the group return ABORTED; idempotent, from any
 *  thread.
 *
 *  Peers that wait for this rank get PEER_LOST or TIMEOUT. They count it as lost, so that calls on
 *  all other groups of their contexts fail with PEER_LOST, and those of this rank's with ABORTED. A
 *  pending call may return before this one does. Its thread may destroy the group and the context
 *  at once: destroy waits for this call.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_abort(nxd_group_t* group);

/** [local] Ranks in the group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_size(nxd_group_t* group, int32_t* out_size);

/** [local] This rank's place in the group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_rank(nxd_group_t* group, int32_t* out_rank);

/** [local] World ranks of the group, as from nxd_layout_get_group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_ranks(nxd_group_t* group, int32_t* ranks, size_t cap,
                                         size_t* out_size);

/** [local] Bound of every later call on the group, in milliseconds; all ranks should agree.
 *  @return NXD_OK; INVALID_ARGUMENT (not positive).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_set_timeout(nxd_group_t* group, int64_t timeout_ms);

/** [local] The transport of the group's data; for a group of one, SHARED_MEMORY.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_get_transport(nxd_group_t* group, nxd_transport_t* out_transport);

/** [local] Gives the group's next call a key, for a caller whose calls a compiler may reorder.
 *
 *  The next collective or message that this rank issues on the group has the key, whether it waits
 *  or not. Ranks compare their keys before data move: where they differ, the call fails with
 *  INVALID_ARGUMENT on every rank, with the calls and keys of two of them, and the group stays
 *  usable. So ranks that issue two calls of one size in different orders get an error, never each
 *  other's sums. Where calls may really come in any order, make a group for each stream of calls:
 *  groups do not wait for each other.
 *  @param key  any number; 0: none.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_set_next_key(nxd_group_t* group, uint64_t key);

/** [collective: group] Reduces count elements of every rank and leaves the result on every rank.
 *
 *  @param send     count elements; may equal receive. One that overlaps it otherwise is
 *                  INVALID_ARGUMENT.
 *  @param receive  count elements.
 *  @param count    0 is allowed; then buffers may be NULL.
 *  @param dtype    F32, F64, BF16, F16, I32 or I64.
 *  @return NXD_OK; INVALID_ARGUMENT (also when ranks disagree); TIMEOUT; PEER_LOST; ABORTED.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_reduce(nxd_group_t* group, const void* send, void* receive,
                                    size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);

/** [collective: group] Concatenates count elements of every rank, in rank order, on every rank.
 *
 *  @param send     count elements; may be receive + rank * count elements. One that overlaps
 *                  receive otherwise is INVALID_ARGUMENT.
 *  @param receive  size * count elements.
 *  @param dtype    any.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_gather(nxd_group_t* group, const void* send, void* receive,
                                    size_t count, nxd_dtype_t dtype);

/** [collective: group] Reduces size * count elements and leaves the rank-th part of the result.
 *
 *  @param send     size * count elements.
 *  @param receive  count elements; may be send + rank * count elements. One that overlaps send
 *                  otherwise is INVALID_ARGUMENT.
 *  @param dtype    F32, F64, BF16, F16, I32 or I64.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_reduce_scatter(nxd_group_t* group, const void* send, void* receive,
                                        size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce);

/** [collective: group] Copies count elements of one rank to all others.
 *
 *  @param buffer  count elements; read on root, written elsewhere.
 *  @param root    rank in the group.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_broadcast(nxd_group_t* group, void* buffer, size_t count,
                                   nxd_dtype_t dtype, int32_t root);

/** [collective: group] Sends the i-th part of send to rank i and receives its part for this rank.
 *
 *  Every rank exchanges with every other, so between hosts each connects to all ranks of the group.
 *
 *  @param send     size * count elements. One that overlaps receive is INVALID_ARGUMENT.
 *  @param receive  size * count elements, the i-th part from rank i.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_all_to_all(nxd_group_t* group, const void* send, void* receive,
                                    size_t count, nxd_dtype_t dtype);

/** [collective: the two ranks] Sends count elements to one rank, which calls nxd_receive with the
 *  same tag.
 *
 *  Several sends from one rank to another arrive in order per tag. Returns when the buffer may be
 *  reused.
 *  @param to   rank in the group, not this one.
 *  @param tag  0..65535.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_send(nxd_group_t* group, const void* buffer, size_t count,
                              nxd_dtype_t dtype, int32_t to, int32_t tag);

/** [collective: the two ranks] Receives count elements from one rank, which calls nxd_send with
 *  the same tag.
 *
 *  @return NXD_OK; INVALID_ARGUMENT when the sender's count or dtype differ, on both sides.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_receive(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                                 int32_t from, int32_t tag);

/** [collective: group] Returns when every rank of the group has called.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_barrier(nxd_group_t* group);

/** The bytes that the ranks of a group have brought to a rendezvous. */
typedef struct nxd_payloads nxd_payloads_t;

/** [collective: group] Waits for every rank of the group at a place of the program that has a name,
 *  and gives each rank what all of them have brought.
 *
 *  Ranks that stand at different places get an error that names two of them. It ends the step of
 *  device XLA first, as nxd_mark_step(1) does: a rank whose step fails fails on all of them.
 *  @param tag      name of the place, the same on all ranks; UTF-8.
 *  @param payload  size bytes; may be NULL when size is 0. Ranks may bring different sizes; every
 *                  rank gets room for as many of the largest as there are ranks.
 *  @param[out] out_payloads  the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT, also when tags differ (on all ranks); OUT_OF_MEMORY; TIMEOUT;
 *          PEER_LOST; ABORTED.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_group_rendezvous(nxd_group_t* group, const char* tag, const void* payload,
                                          size_t size, nxd_payloads_t** out_payloads);

/** [local] The bytes that one rank has brought.
 *
 *  @param rank  in the group.
 *  @param[out] out_data  borrowed from payloads; not NULL, also for 0 bytes.
 *  @return NXD_OK; INVALID_ARGUMENT (NULL, rank).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_payloads_get(nxd_payloads_t* payloads, int32_t rank, const void** out_data,
                                      size_t* out_size);

/** [local] Releases the payloads.
 *  @since 0.1 */
NXD_API void nxd_payloads_destroy(nxd_payloads_t* payloads);

#ifdef __cplusplus
}
#endif

#endif /* NXD_GROUP_H */
