/* A rank of a world that another program starts.
 *
 *   collectives          every collective, for several sizes, against values computed locally
 *   collectives lose     all_reduce until a rank is lost, and which
 *
 * Prints a line of what it found: "rank R of N, local rank L: ok", or "lost" with the error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nxd.h"

enum { kLargest = 200000, kMostRanks = 16 };

typedef struct {
  nxd_context_t* ctx;
  nxd_group_t* world; /* borrowed */
  int32_t rank, size;
  double *send, *recv;
} rank_t;

static int failed(const rank_t* r, const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "rank %d: %s: %s: %s\n", (int)r->rank, call, nxd_status_string(status),
          nxd_last_error());
  return 1;
}
#define TRY(call)                           \
  do {                                      \
    if (failed(r, #call, (call))) return 0; \
  } while (0)

/* Element i of what a rank contributes. Whole numbers, so that every sum is exact. */
static double value(int32_t rank, size_t i) { return (double)((i * 7 + 3) % 1000) + 1000.0 * rank; }

static void fill(const rank_t* r, size_t count, size_t first) {
  for (size_t i = 0; i < count; ++i) r->send[i] = value(r->rank, first + i);
  memset(r->recv, 0xff, (size_t)r->size * kLargest * sizeof *r->recv);
}

static int equal(const rank_t* r, const char* what, size_t at, double want) {
  if (r->recv[at] == want) return 1;
  fprintf(stderr, "rank %d: %s: element %zu: expected %.17g, got %.17g\n", (int)r->rank, what, at,
          want, r->recv[at]);
  return 0;
}

static double sum_of(const rank_t* r, size_t i) {
  double sum = 0;
  for (int32_t rank = 0; rank < r->size; ++rank) sum += value(rank, i);
  return sum;
}

static int reductions(rank_t* r, size_t n) {
  const size_t all = n * (size_t)r->size;
  fill(r, n, 0);
  TRY(nxd_all_reduce(r->world, r->send, r->recv, n, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  for (size_t i = 0; i < n; ++i) {
    if (!equal(r, "all_reduce", i, sum_of(r, i))) return 0;
  }
  fill(r, all, 0);
  TRY(nxd_reduce_scatter(r->world, r->send, r->recv, n, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  for (size_t i = 0; i < n; ++i) {
    if (!equal(r, "reduce_scatter", i, sum_of(r, (size_t)r->rank * n + i))) return 0;
  }
  return 1;
}

static int copies(rank_t* r, size_t n) {
  fill(r, n, 0);
  TRY(nxd_all_gather(r->world, r->send, r->recv, n, NXD_DTYPE_F64));
  for (int32_t rank = 0; rank < r->size; ++rank) {
    for (size_t i = 0; i < n; ++i) {
      if (!equal(r, "all_gather", (size_t)rank * n + i, value(rank, i))) return 0;
    }
  }
  fill(r, n * (size_t)r->size, 0);
  TRY(nxd_all_to_all(r->world, r->send, r->recv, n, NXD_DTYPE_F64));
  for (int32_t rank = 0; rank < r->size; ++rank) {
    for (size_t i = 0; i < n; ++i) {
      const double want = value(rank, (size_t)r->rank * n + i);
      if (!equal(r, "all_to_all", (size_t)rank * n + i, want)) return 0;
    }
  }
  for (int32_t root = 0; root < r->size; ++root) {
    fill(r, n, 0);
    memcpy(r->recv, r->send, n * sizeof *r->send);
    TRY(nxd_broadcast(r->world, r->recv, n, NXD_DTYPE_F64, root));
    for (size_t i = 0; i < n; ++i) {
      if (!equal(r, "broadcast", i, value(root, i))) return 0;
    }
  }
  return 1;
}

/* Every pair of ranks, both ways: the lower one sends first. */
static int messages(rank_t* r, size_t n) {
  for (int32_t peer = 0; peer < r->size; ++peer) {
    if (peer == r->rank) continue;
    fill(r, n, 0);
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == (r->rank < peer)) {
        TRY(nxd_send(r->world, r->send, n, NXD_DTYPE_F64, peer, 5));
      } else {
        TRY(nxd_receive(r->world, r->recv, n, NXD_DTYPE_F64, peer, 5));
      }
    }
    for (size_t i = 0; i < n; ++i) {
      if (!equal(r, "receive", i, value(peer, i))) return 0;
    }
  }
  TRY(nxd_barrier(r->world));
  return 1;
}

static int check(rank_t* r) {
  const size_t sizes[] = {1, 999, kLargest};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    if (!reductions(r, sizes[i]) || !copies(r, sizes[i]) || !messages(r, sizes[i])) return 0;
  }
  int32_t local_rank = -1;
  TRY(nxd_context_get_local_rank(r->ctx, &local_rank));
  TRY(nxd_context_finalize(r->ctx));
  printf("rank %d of %d, local rank %d: ok\n", (int)r->rank, (int)r->size, (int)local_rank);
  return 1;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int lose(rank_t* r) {
  nxd_error_info_t info = {.struct_size = sizeof info};
  double last = now_ms();
  fill(r, kLargest, 0);
  for (int turn = 0;; ++turn) {
    const nxd_status_t status = nxd_all_reduce(r->world, r->send, r->recv, turn % 2 ? 10 : kLargest,
                                               NXD_DTYPE_F64, NXD_REDUCE_SUM);
    if (status != NXD_OK) {
      const double took = now_ms() - last;
      if (nxd_last_error_info(&info) != NXD_OK) return 0;
      printf("rank %d lost: %s root %d after %.0f ms in %s: %s\n", (int)r->rank,
             nxd_status_string(status), (int)info.root_rank, took, info.operation,
             nxd_last_error());
      return status == NXD_ERROR_TIMEOUT || status == NXD_ERROR_PEER_LOST;
    }
    last = now_ms();
    if (turn == 0) printf("rank %d runs\n", (int)r->rank), fflush(stdout);
  }
}

static int join(rank_t* r) {
  TRY(nxd_context_create(NULL, &r->ctx));
  TRY(nxd_context_get_rank(r->ctx, &r->rank));
  TRY(nxd_context_get_size(r->ctx, &r->size));
  TRY(nxd_context_get_world_group(r->ctx, &r->world));
  if (r->size > kMostRanks) return 0;
  r->send = malloc((size_t)r->size * kLargest * sizeof *r->send);
  r->recv = malloc((size_t)r->size * kLargest * sizeof *r->recv);
  return r->send && r->recv;
}

int main(int argc, char** argv) {
  rank_t r = {NULL, NULL, -1, 0, NULL, NULL};
  const int losing = argc > 1 && strcmp(argv[1], "lose") == 0;
  const int good = join(&r) && (losing ? lose(&r) : check(&r));
  free(r.send);
  free(r.recv);
  nxd_context_destroy(r.ctx);
  return good ? 0 : 1;
}
