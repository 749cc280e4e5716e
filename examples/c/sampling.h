/* Random numbers from counters, and text from a trained model. */
#ifndef NXD_EXAMPLES_SAMPLING_H
#define NXD_EXAMPLES_SAMPLING_H

#include "nxd.h"

/* The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014). */
uint64_t random_bits(uint64_t seed, uint64_t draw);

typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model; /* a byte-level language model */
  int64_t window;      /* tokens it sees at once */
  int length;          /* bytes to write */
  double temperature;
  uint64_t seed;
} sample_t;

/* Lets a model in training go on from a prompt; it draws no dropout meanwhile. All ranks call it
 * and get the same text, prompt included; *out_text is to be freed. */
nxd_status_t write_sample(const sample_t* sample, const char* prompt, char** out_text);

#endif
