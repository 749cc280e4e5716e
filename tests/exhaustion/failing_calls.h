/* Calls of the system that fail on demand. A program that is linked with failing_calls.c has its
 * own malloc, mmap, pthread_create, socket and so on, which go on to the C library's, and which
 * fail when they are told to.
 *
 * Only calls made by libnxd_core, libnxd or Gloo are counted and fail: those whose innermost frame
 * outside of the C and C++ runtime (libstdc++, libgcc, libc) lies in one of these libraries. So the
 * program's own calls always succeed, and so do those of
 *   - libdnnl, libgomp and other libraries below ours, several of which crash without memory;
 *   - ld.so, where a thread-local block that cannot be had ends the process;
 *   - the registration of a thread-local destructor, where glibc ends the process too. */
#ifndef NXD_TESTS_EXHAUSTION_FAILING_CALLS_H
#define NXD_TESTS_EXHAUSTION_FAILING_CALLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  kFailMemory,     /* malloc, calloc, realloc, aligned_alloc, posix_memalign, memalign */
  kFailMapping,    /* mmap */
  kFailThread,     /* pthread_create */
  kFailDescriptor, /* socket, accept4, open, openat, fopen, pipe2, epoll_create1, eventfd,
                      memfd_create, pidfd_open */
  kFailKernel,     /* epoll_ctl that adds, ftruncate, listen, setting up what exists */
  kFailFile,       /* reads and writes of files, fsync, and calls that name, list or remove them */
  kFailKinds
} fail_kind_t;

extern const char* const fail_kind_names[kFailKinds];

/* From now on the first-th call of a kind fails, and the count - 1 after it. Counts from 1; a count
 * of 0 fails none. */
void fail_calls(fail_kind_t kind, uint64_t first, uint64_t count);
void fail_no_calls(void);

uint64_t calls_counted(void); /* of the kind, since fail_calls */
uint64_t calls_failed(void);
/* The code in our libraries that made the first call that failed; 0: none has. */
uintptr_t first_failed_call(void);

/* How many of these Gloo made: what it holds when one fails in a constructor of its own, a
 * descriptor or a list of addresses, is lost. */
uint64_t calls_failed_in_gloo(void);

/* Memory that our libraries took since track_memory and have not given back. */
void track_memory(void);
size_t tracked_blocks(void);
/* The code that took one of these blocks, and its size; 0 when there are not so many. */
uintptr_t tracked_block(size_t index, size_t* out_size);
int is_code_of_gloo(uintptr_t code);

#ifdef __cplusplus
}
#endif

#endif
