/* The bodies of the programs share this: a rank, and how its calls end it. */
#ifndef NXD_TESTS_EXHAUSTION_RANK_H
#define NXD_TESTS_EXHAUSTION_RANK_H

#include <stdatomic.h>
#include <stdio.h>

#include "exhaustion/programs.h"

typedef struct {
  const program_t* program;
  int rank;
  nxd_store_t* store; /* that ranks meet in */
  int64_t timeout_ms;
  const char* path;
  atomic_int* port; /* of a store that rank 0 serves; -1: it serves none */
  rank_end_t* end;
} rank_t;

static inline void note_failure(rank_t* r, const char* call, nxd_status_t status) {
  r->end->status = status;
  snprintf(r->end->call, sizeof r->end->call, "%s", call);
  snprintf(r->end->message, sizeof r->end->message, "%s", nxd_last_error());
}

/* To be used where there is a rank r: ends the function at a call that fails. */
#define TRY(call)                        \
  do {                                   \
    const nxd_status_t status_ = (call); \
    if (status_ != NXD_OK) {             \
      note_failure(r, #call, status_);   \
      return 0;                          \
    }                                    \
  } while (0)
#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      r->end->wrong = 1;                                                      \
      snprintf(r->end->call, sizeof r->end->call, "expected %s", #condition); \
      return 0;                                                               \
    }                                                                         \
  } while (0)

/* A context of the rank's, with its layout; 0 where that failed. */
int join(rank_t* r, int tensor, int pipeline, nxd_context_t** ctx);

void layers(void* rank);

#endif
