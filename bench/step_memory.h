/* Memory of a rank of bench_step, beside that which the planner predicts. */
#ifndef NXD_BENCH_STEP_MEMORY_H
#define NXD_BENCH_STEP_MEMORY_H

#include "step_options.h"

/* Pages of this process that hold no file: private ones, and shared ones over the processes that
 * map them. */
double process_bytes(void);

/* 1 for a Hugging Face configuration of a BERT. */
int is_bert(const char* config);

/* most_bytes: of the rank that has most, without process_bytes. 0, with a message, for failure. */
int print_memory_plan(const char* config, const step_options_t* options, int size,
                      double most_bytes, double process_bytes);

#endif
