/* The limit that a pipeline's schedule sets to a step of bench_step. */
#ifndef NXD_BENCH_STEP_SCHEDULE_H
#define NXD_BENCH_STEP_SCHEDULE_H

#include "nxd.h"

/* Simulates the schedule with the times that the tasks of a recorded timeline took: for each stage
 * and kind of task the median, so that a load of the machine weighs on the limit as on the step.
 * Collective; the report is rank 0's. 0, with a message, for failure. */
int report_schedule(nxd_pp_t* pp, int ranks, int chunks, int rank, nxd_pp_report_t* report);

#endif
