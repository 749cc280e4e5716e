/* The collectives of libnxd in the loop of collectives_loop.h, on ranks that a launcher started.
 * scripts/bench_collectives runs it beside other libraries.
 *
 *   nxdrun -n 2 bench_collectives --cases all_reduce:f32:1048576,barrier:f32:0
 *   --buffers arena   memory that the ranks share; foreign (default): memory of the program
 *   --transport NAME  measures nothing unless this is what carries the data
 *   --bounds yes      in turns with each all-reduce, its memory traffic alone: every rank copies a
 *                     buffer ("copy"), reads and writes each element of one ("in place"), and of
 *                     its slice of a buffer of each rank ("in shared") */
#include "collectives_loop.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "nxd.h"

static nxd_context_t* context;
static nxd_group_t* world; /* borrowed */
static int32_t world_rank, world_size;

static const char* result(nxd_status_t status) {
  return status == NXD_OK ? NULL : nxd_last_error();
}

static nxd_status_t ping_pong(const case_t* what, void* send, void* recv) {
  nxd_status_t status = NXD_OK;
  if (world_rank == 0) {
    status = nxd_send(world, send, elements_of(what), NXD_DTYPE_F32, 1, 0);
    if (status == NXD_OK) {
      status = nxd_receive(world, recv, elements_of(what), NXD_DTYPE_F32, 1, 0);
    }
  } else if (world_rank == 1) {
    status = nxd_receive(world, recv, elements_of(what), NXD_DTYPE_F32, 0, 0);
    if (status == NXD_OK) {
      status = nxd_send(world, recv, elements_of(what), NXD_DTYPE_F32, 0, 0);
    }
  }
  return status;
}

static const char* call(const case_t* what, void* send, void* recv) {
  const nxd_dtype_t dtype = what->is_bf16 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
  const size_t n = elements_of(what);
  const size_t part = n / (size_t)world_size;
  switch (what->operation) {
    case ALL_REDUCE: return result(nxd_all_reduce(world, recv, recv, n, dtype, NXD_REDUCE_SUM));
    case REDUCE_SCATTER:
      return result(nxd_reduce_scatter(world, send, recv, part, dtype, NXD_REDUCE_SUM));
    case ALL_GATHER: return result(nxd_all_gather(world, send, recv, part, dtype));
    case BROADCAST: return result(nxd_broadcast(world, recv, n, dtype, 0));
    case ALL_TO_ALL: return result(nxd_all_to_all(world, send, recv, part, dtype));
    case PING_PONG: return result(ping_pong(what, send, recv));
    default: return result(nxd_barrier(world));
  }
}

static const char* barrier(void) { return result(nxd_barrier(world)); }

static const char* largest(double* values, size_t count) {
  return result(nxd_all_reduce(world, values, values, count, NXD_DTYPE_F64, NXD_REDUCE_MAX));
}

/* An all-reduce in place over shared memory gives each of n ranks a slice of bytes / n: the rank
 * reads it in n buffers and writes the sum to n buffers, bytes read and bytes written in all. So
 * does a copy of bytes within private memory, and so does changing bytes where they are. With more
 * ranks than cores, as many ranks as there are cores do the work of all. */
static int cores(void) {
  cpu_set_t all;
  return sched_getaffinity(0, sizeof all, &all) == 0 ? CPU_COUNT(&all) : 1;
}
static int workers; /* ranks at work */

/* The bytes that this rank moves for one call of all ranks, in whole words: they may be more than a
 * buffer has. */
static size_t work_of_rank(const case_t* what) {
  const size_t words = what->bytes / sizeof(uint64_t) * (size_t)world_size / (size_t)workers;
  return world_rank < workers ? words * sizeof(uint64_t) : 0;
}

static const char* copy(const case_t* what, void* send, void* recv) {
  for (size_t left = work_of_rank(what); left > 0;) {
    const size_t bytes = left < what->bytes ? left : what->bytes;
    memcpy(recv, send, bytes);
    left -= bytes;
  }
  return NULL;
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#endif
static void
change(uint64_t* data, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] += 1;
}

static const char* change_in_place(const case_t* what, void* send, void* recv) {
  (void)send;
  for (size_t left = work_of_rank(what); left > 0;) {
    const size_t bytes = left < what->bytes ? left : what->bytes;
    change(recv, bytes / sizeof(uint64_t));
    left -= bytes;
  }
  return NULL;
}

/* The algorithm's traffic where its data lie: the ranks at work divide every rank's buffer, which
 * that rank has just written, into slices. Nothing is summed, and no rank waits. */
static char* buffers_of_all; /* shared; of each rank one, of the largest case */
static size_t bytes_of_one;

static const char* change_in_shared(const case_t* what, void* send, void* recv) {
  (void)send, (void)recv;
  if (world_rank >= workers) return NULL;
  const size_t slice = what->bytes / sizeof(uint64_t) / (size_t)workers;
  for (int r = 0; r < world_size; ++r) {
    uint64_t* data = (uint64_t*)(void*)(buffers_of_all + (size_t)r * bytes_of_one);
    change(data + (size_t)world_rank * slice, slice);
  }
  return NULL;
}

/* Takes the place of every call when what was asked for is not there. */
static const char* rejection;
static const char* reject(const case_t* what, void* send, void* recv) {
  (void)what, (void)send, (void)recv;
  return rejection;
}

/* Memory of the program; memory of nxd_arena_alloc; the best there is for private memory; a
 * rank's part of memory that all map. Bounds are measured in the last two. */
typedef enum { FOREIGN, ARENA, HUGE_PAGES, PART_OF_ALL } memory_t;

static int open_for_all(char name[32]) {
  if (world_rank == 0) {
    snprintf(name, 32, "/nxd_bench_%d", (int)getpid());
    const int descriptor = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    const off_t bytes = (off_t)(bytes_of_one * (size_t)world_size);
    if (descriptor < 0 || ftruncate(descriptor, bytes) != 0) perror(name);
    return descriptor;
  }
  return shm_open(name, O_RDWR, 0);
}

static void* map_for_all(size_t bytes) {
  char name[32] = {0};
  bytes_of_one = bytes;
  int descriptor = world_rank == 0 ? open_for_all(name) : -1;
  if (nxd_broadcast(world, name, sizeof name / 4, NXD_DTYPE_I32, 0) != NXD_OK) return NULL;
  if (world_rank != 0) descriptor = open_for_all(name);
  void* data =
      mmap(NULL, bytes * (size_t)world_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (descriptor >= 0) close(descriptor);
  if (nxd_barrier(world) != NXD_OK || data == MAP_FAILED) data = NULL;
  if (world_rank == 0) shm_unlink(name);
  buffers_of_all = data;
  return data ? buffers_of_all + bytes * (size_t)world_rank : NULL;
}

static void* allocate(memory_t memory, size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  void* data = NULL;
  if (memory == FOREIGN) return malloc(bytes);
  if (memory == PART_OF_ALL) return map_for_all(bytes);
  if (memory == HUGE_PAGES) {
    data = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (data) madvise(data, bytes, MADV_HUGEPAGE);
  } else if (nxd_arena_alloc(context, bytes, &data) != NXD_OK) {
    fprintf(stderr, "bench_collectives: %s\n", nxd_last_error());
  }
  return data;
}

static void release(memory_t memory, void* data) {
  if (memory == ARENA) {
    nxd_arena_free(context, data);
  } else if (memory == PART_OF_ALL) {
    if (buffers_of_all) munmap(buffers_of_all, bytes_of_one * (size_t)world_size);
  } else {
    free(data);
  }
}

/* The reason why this run would not measure the transport that it is to measure. */
static const char* other_transport(const char* name) {
  static const char* const names[] = {"auto", "gloo", "shared_memory", "hierarchical"};
  static char reason[96];
  nxd_transport_t transport = NXD_TRANSPORT_GLOO;
  if (!name) return NULL;
  if (nxd_group_get_transport(world, &transport) != NXD_OK) {
    return nxd_last_error();
  }
  if (strcmp(name, names[transport]) == 0) return NULL;
  snprintf(reason, sizeof reason, "the transport is %s", names[transport]);
  return reason;
}

static int join(void) {
  const nxd_status_t status = nxd_context_create(NULL, &context);
  if (status != NXD_OK || nxd_context_get_world_group(context, &world) != NXD_OK ||
      nxd_context_get_rank(context, &world_rank) != NXD_OK ||
      nxd_context_get_size(context, &world_size) != NXD_OK) {
    fprintf(stderr, "bench_collectives: %s\n", nxd_last_error());
    return 0;
  }
  return 1;
}

typedef struct {
  int in_arena, bounds;
  const char* transport;
} own_arguments_t;

static int run(const arguments_t* a, const own_arguments_t* own) {
  const library_t library = {.label = a->label,
                             .rank = world_rank,
                             .size = world_size,
                             .call = call,
                             .barrier = barrier,
                             .largest = largest};
  subject_t subjects[] = {{library, 0, 0}, {library, 0, 0}, {library, 0, 0}, {library, 0, 0}};
  memory_t memory[] = {own->in_arena ? ARENA : FOREIGN, HUGE_PAGES, HUGE_PAGES, PART_OF_ALL};
  const int count = own->bounds ? kMostSubjects : 1;
  rejection = other_transport(own->transport);
  if (rejection) {
    memory[0] = FOREIGN;
    subjects[0].library.call = reject;
  } else {
    write_version(&library, a, nxd_build_info());
  }
  subjects[1].library.label = "copy";
  subjects[1].library.call = copy;
  subjects[2].library.label = "in place";
  subjects[2].library.call = change_in_place;
  subjects[3].library.label = "in shared";
  subjects[3].library.call = change_in_shared;
  int code = 0;
  for (int s = 0; s < count; ++s) {
    const size_t bytes = largest_bytes(a->cases);
    const int sends = s < 2; /* the others work in place */
    subjects[s].library.unchecked = s > 0;
    subjects[s].recv = allocate(memory[s], bytes);
    subjects[s].send = sends ? allocate(memory[s], bytes) : subjects[s].recv;
    if (!subjects[s].send || !subjects[s].recv) code = 1;
  }
  if (code == 0) code = run_cases(subjects, count, a);
  for (int s = 0; s < count; ++s) {
    if (subjects[s].send != subjects[s].recv) release(memory[s], subjects[s].send);
    release(memory[s], subjects[s].recv);
  }
  return code;
}

int main(int argc, char** argv) {
  arguments_t a = {.cases = "all_reduce:f32:4096", .label = "nxd", .seconds = 0.2};
  own_arguments_t own = {0, 0, NULL};
  static const struct option options[] = {COMMON_OPTIONS,
                                          {"buffers", required_argument, NULL, 'b'},
                                          {"bounds", required_argument, NULL, 'B'},
                                          {"transport", required_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (take_option(&a, c)) continue;
    if (c != 'b' && c != 'B' && c != 't') return 2;
    if (c == 'b') own.in_arena = strcmp(optarg, "arena") == 0;
    if (c == 'B') own.bounds = strcmp(optarg, "yes") == 0;
    if (c == 't') own.transport = optarg;
  }
  if (!join()) return 1;
  workers = world_size < cores() ? world_size : cores();
  if (a.pin) pin_rank(world_rank); /* then it sees but one core */
  int code = run(&a, &own);
  if (nxd_context_finalize(context) != NXD_OK) code = 1;
  nxd_context_destroy(context);
  return code;
}
