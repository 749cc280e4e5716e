/* Ranks that make a context and finalize it, again and again, as their launcher has started them.
 * Now and then one comes late to finalize, by what a wait takes until it looks into the store, or
 * more. Each rank that fails says so, and ends; with --threads N the ranks are threads, with
 * --spawn N processes of nxd_spawn.
 * usage: finalizations ROUNDS [--threads N | --spawn N] */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nxd.h"

static int rounds;

/* SplitMix64 (Steele, Lea and Flood, 2014): all ranks draw the same. */
static uint64_t draw(uint64_t n) {
  uint64_t z = (n + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/* By how much this rank is late in a round: one in eight has a late one, by 30 to 60 ms, or in one
 * in sixty-four by up to 250 ms. */
static int late_ms(int round, int rank, int size) {
  const uint64_t bits = draw((uint64_t)round);
  if (bits % 8 != 0 || (int)(bits / 8 % 1000) % size != rank) return 0;
  const int range = bits / 8000 % 8 == 0 ? 220 : 30;
  return 30 + (int)(bits / 64000 % 1000) * range / 1000;
}

static int run_rounds(const nxd_context_options_t* options) {
  for (int round = 0; round < rounds; ++round) {
    nxd_context_t* ctx = NULL;
    int32_t rank = options->rank, size = options->size;
    const char* what = "create";
    nxd_status_t status = nxd_context_create(options, &ctx);
    if (status == NXD_OK) {
      nxd_context_get_rank(ctx, &rank);
      nxd_context_get_size(ctx, &size);
      const int ms = late_ms(round, rank, size);
      const struct timespec pause = {0, ms * 1000000L};
      if (ms > 0) nanosleep(&pause, NULL);
      what = "finalize";
      status = nxd_context_finalize(ctx);
    }
    if (status != NXD_OK) {
      fprintf(stderr, "finalizations: round %d, rank %d: %s: %s: %s\n", round, rank, what,
              nxd_status_string(status), nxd_last_error());
      nxd_context_destroy(ctx);
      return 1;
    }
    nxd_context_destroy(ctx);
  }
  return 0;
}

static void* rank_main(void* arg) { return run_rounds(arg) == 0 ? NULL : arg; }

static int run_threads(int size) {
  nxd_store_t* store = NULL;
  if (size < 1 || size > 64 || nxd_store_create_local(&store) != NXD_OK) return 1;
  nxd_context_options_t options[64];
  pthread_t threads[64];
  for (int rank = 0; rank < size; ++rank) {
    options[rank] = (nxd_context_options_t)NXD_CONTEXT_OPTIONS_INIT;
    options[rank].rendezvous = NXD_RENDEZVOUS_STORE;
    options[rank].rank = rank;
    options[rank].size = size;
    options[rank].store = store;
    if (pthread_create(&threads[rank], NULL, rank_main, &options[rank]) != 0) abort();
  }
  int failed = 0;
  for (int rank = 0; rank < size; ++rank) {
    void* result = NULL;
    pthread_join(threads[rank], &result);
    failed += result != NULL;
  }
  nxd_store_destroy(store);
  return failed > 0;
}

/* The processes run this program again, without the option. */
static int run_spawned(const char* program, const char* how_often, int size) {
  const char* const arguments[] = {program, how_often, NULL};
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = size;
  options.argv = arguments;
  nxd_job_t* job = NULL;
  nxd_status_t status = nxd_spawn(&options, &job);
  if (status == NXD_OK) status = nxd_job_wait(job, -1);
  if (status != NXD_OK) fprintf(stderr, "finalizations: %s\n", nxd_last_error());
  nxd_job_destroy(job);
  return status != NXD_OK;
}

int main(int argc, char** argv) {
  static const struct option options[] = {{"threads", required_argument, NULL, 't'},
                                          {"spawn", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
  int threads = 0, processes = 0, wrong = 0;
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (c == 't') threads = atoi(optarg);
    if (c == 's') processes = atoi(optarg);
    wrong |= c == '?';
  }
  rounds = argc - optind == 1 ? atoi(argv[optind]) : 0;
  if (wrong || rounds < 1) {
    fputs("usage: finalizations ROUNDS [--threads N | --spawn N]\n", stderr);
    return 2;
  }
  if (threads > 0) return run_threads(threads);
  if (processes > 0) return run_spawned(argv[0], argv[optind], processes);
  const nxd_context_options_t defaults = NXD_CONTEXT_OPTIONS_INIT;
  return run_rounds(&defaults);
}
