/* Options of bench_step, and the model configuration they name. */
#ifndef NXD_BENCH_STEP_OPTIONS_H
#define NXD_BENCH_STEP_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "nxd.h"

typedef struct {
  int tp, threads, steps, microbatches, sequence_parallel, plain, ddp, zero1, stochastic;
  int pp, chunks, cost; /* pipeline: 0: none */
  int recompute, memory;
  int reduce_bf16; /* partial sums of linear layers are exchanged in bf16 */
  int small_peak;  /* of small products, which take no time and are no measurement */
  int recorded;    /* on device XLA */
  nxd_pp_schedule_kind_t schedule;
  int64_t hidden, layers, heads, kv_heads, intermediate, vocab, sequence, batch;
  nxd_dtype_t dtype;
  const char *config, *checkpoint;
} step_options_t;

/* 0, with a message, for arguments that cannot be understood. */
int read_step_options(step_options_t* options, int argc, char** argv);

/* A Hugging Face configuration: the file given, or a Llama of the sizes given. Sets vocab to the
 * file's vocab_size. 0, with a message, when there is none. */
int make_config(step_options_t* options, char* config, size_t room);

#endif
