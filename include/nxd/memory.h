/** @file
 * Memory that the ranks of a host share, and the pool that tensors are drawn from. */
#ifndef NXD_MEMORY_H
#define NXD_MEMORY_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** [local] Memory that the other ranks of this host can read and write too.
 *
 *  Collectives over shared memory work on such buffers in place, which takes a third of the time or
 *  less; any other buffer works as well. Contents are undefined at first.
 *  @param size       bytes; 0 is allowed.
 *  @param[out] out_data  aligned to 64 bytes. Valid until nxd_arena_free, or until the context and
 *                    all that was made from it are destroyed.
 *  @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; IO (the system has no shared memory).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_arena_alloc(nxd_context_t* ctx, size_t size, void** out_data);

/** [local] Takes back memory of nxd_arena_alloc for later calls of it; no call may be using it.
 *  @param data  NULL does nothing.
 *  @return NXD_OK; INVALID_ARGUMENT (not from this context's nxd_arena_alloc).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_arena_free(nxd_context_t* ctx, void* data);

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

/** [local] Reads the pool's figures.
 *  @param[in,out] out_stats  struct_size set by the caller: of its own header, which may be older.
 *  @return NXD_OK; INVALID_ARGUMENT; ABI_MISMATCH (struct_size of no version).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_get_stats(nxd_memory_stats_t* out_stats);

/** [local] Bounds the pool. A call that would exceed the cap fails with OUT_OF_MEMORY, and its
 *  message names the size asked for and the cap. Blocks in use stay, even beyond the cap.
 *
 *  The cap is on bytes_in_use. Memory kept for reuse is given back before the pool holds more than
 *  the cap, as far as no block in use lies on it. Arenas are not counted.
 *  @param bytes  0: no cap, as at first.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_set_cap(uint64_t bytes);

/** [local] Gives the pool's unused memory back to the system.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_trim(void);

#ifdef __cplusplus
}
#endif

#endif /* NXD_MEMORY_H */
