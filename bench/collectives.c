/* The collectives of libnxd in the loop of collectives_loop.h, on ranks that a launcher started.
 * scripts/bench_collectives runs it beside other libraries.
 *
 *   nxdrun -n 2 bench_collectives --cases all_reduce:f32:1048576,barrier:f32:0
 *   --buffers arena   memory that the ranks share; foreign (default): memory of the program
 *   --transport NAME  measures nothing unless this is what carries the data
 *   --bound copy      no collective, but the memory traffic of one: every rank copies a buffer
 *   --bound in_place  the same, reading and writing each element of one buffer */
#include "collectives_loop.h"

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
static int work_of_rank; /* such calls that this rank makes for one */

static const char* copy(const case_t* what, void* send, void* recv) {
  for (int i = 0; i < work_of_rank; ++i) memcpy(recv, send, what->bytes);
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
  for (int i = 0; i < work_of_rank; ++i) change(recv, what->bytes / sizeof(uint64_t));
  return NULL;
}

/* Takes the place of every call when what was asked for is not there. */
static const char* refusal;
static const char* refuse(const case_t* what, void* send, void* recv) {
  (void)what, (void)send, (void)recv;
  return refusal;
}

typedef enum { FOREIGN, ARENA, HUGE_PAGES } memory_t;

/* Memory of the program, memory that the ranks share, or the best there is for private memory, in
 * which bounds are measured. */
static void* allocate(memory_t memory, size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  void* data = NULL;
  if (memory == FOREIGN) return malloc(bytes);
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
  int in_arena;
  const char *bound, *transport;
} own_arguments_t;

static int run(const arguments_t* a, const own_arguments_t* own) {
  library_t library = {.label = a->label,
                       .rank = world_rank,
                       .size = world_size,
                       .call = call,
                       .barrier = barrier,
                       .largest = largest};
  refusal = other_transport(own->transport);
  const memory_t memory = own->bound ? HUGE_PAGES : own->in_arena && !refusal ? ARENA : FOREIGN;
  if (refusal) {
    library.call = refuse;
  } else if (own->bound) {
    library.call = strcmp(own->bound, "copy") == 0 ? copy : change_in_place;
    library.unchecked = 1;
  } else {
    write_version(&library, a, nxd_build_info());
  }
  const size_t bytes = largest_bytes(a->cases);
  void* send = allocate(memory, bytes);
  void* recv = allocate(memory, bytes);
  const int code = send && recv ? run_cases(&library, a, send, recv) : 1;
  release(memory, send);
  release(memory, recv);
  return code;
}

int main(int argc, char** argv) {
  arguments_t a = {.cases = "all_reduce:f32:4096", .label = "nxd", .seconds = 0.2};
  own_arguments_t own = {0, NULL, NULL};
  for (int i = 1; i < argc;) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    int taken = take_argument(&a, argv[i], value);
    if (!taken && value) {
      taken = 2;
      if (strcmp(argv[i], "--buffers") == 0)
        own.in_arena = strcmp(value, "arena") == 0;
      else if (strcmp(argv[i], "--bound") == 0)
        own.bound = value;
      else if (strcmp(argv[i], "--transport") == 0)
        own.transport = value;
      else
        taken = 0;
    }
    if (!taken) {
      fprintf(stderr, "bench_collectives: cannot understand %s\n", argv[i]);
      return 2;
    }
    i += taken;
  }
  if (!join()) return 1;
  work_of_rank = world_rank < cores() ? (world_size + cores() - 1) / cores() : 0;
  if (a.pin) pin_rank(world_rank);
  int code = run(&a, &own);
  if (nxd_context_finalize(context) != NXD_OK) code = 1;
  nxd_context_destroy(context);
  return code;
}
