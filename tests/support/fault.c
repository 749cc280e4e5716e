#include "support/fault.h"

#include <math.h>
#include <signal.h>
#include <time.h>

const fault_kind_t fault_kinds[kFaults] = {
    [kFaultKill] = {"kill", SIGKILL, 1, 1, 0},
    [kFaultStop] = {"stop_continue", SIGSTOP, 1, 1, 0},
    [kFaultStopKill] = {"stop_kill", SIGSTOP, 1, 1, 0},
    [kFaultMismatch] = {"mismatch", 0, 0, 0, 0},
    [kFaultDestroyContext] = {"destroy_context", 0, 0, 1, 0},
    [kFaultDestroyGroup] = {"destroy_group", 0, 0, 1, 0},
    [kFaultAbortContext] = {"abort_context", 0, 0, 1, 0},
    [kFaultAbortGroup] = {"abort_group", 0, 0, 1, 0},
    [kFaultForkCalls] = {"fork_calls", 0, 0, 0, 0},
    [kFaultForkKill] = {"fork_kill", SIGKILL, 1, 1, 0},
    [kFaultDestroyWorks] = {"destroy_works", 0, 0, 0, 0},
    [kFaultDestroyPending] = {"destroy_pending", 0, 0, 1, 0},
    [kFaultCutLink] = {"cut_link", 0, 0, 1, 1},
};

const char* const fault_collectives[kFaultCollectives] = {
    "all_reduce", "all_gather",   "reduce_scatter", "broadcast",
    "all_to_all", "send_receive", "barrier"};

const char* const fault_outcomes[] = {"passed", "HUNG", "LEAKED", "WRONG", "CRASHED"};

uint64_t fault_draw(uint64_t* seed, uint64_t limit) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (*seed >> 33) % limit;
}

uint64_t fault_draw_pause_us(uint64_t* seed) {
  const double exponent = (double)fault_draw(seed, 1000) / 1000.0;
  return (uint64_t)(20.0 * pow(5000.0, exponent));
}

double fault_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
