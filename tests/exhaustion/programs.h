/* Short programs that use the core, for calls of the system to fail under. Each runs its ranks as
 * threads of this process. A rank stops at its first call that fails, and lets go of all it has. */
#ifndef NXD_TESTS_EXHAUSTION_PROGRAMS_H
#define NXD_TESTS_EXHAUSTION_PROGRAMS_H

#include "nxd.h"

enum { kMostRanks = 4 };

/* How a rank ended. */
typedef struct {
  nxd_status_t status; /* of the call that failed; NXD_OK when all went well */
  int wrong;           /* a call gave NXD_OK, but not the result that it should */
  char call[160];
  char message[400];
} rank_end_t;

typedef struct {
  const char* name;
  int ranks;
  nxd_transport_t transport;
  int ranks_per_host; /* 0: all on one, by themselves */
  void (*body)(void* rank);
} program_t;

extern const program_t programs[];
extern const int n_programs;

/* Runs a program. timeout_ms bounds its collectives, and a file or directory is put at path. */
void run_program(const program_t* program, int64_t timeout_ms, const char* path,
                 rank_end_t ends[kMostRanks]);

/* Removes what a program that was ended has left at path. */
void remove_output(const char* path);

#endif
