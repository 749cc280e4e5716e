/* nxdrun: runs a program once per rank on this host. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
static volatile sig_atomic_t received;

static void remember(int signal_number) { received = signal_number; }

static void usage(FILE* out) {
  fputs(
      "usage: nxdrun [-n N] [--omp-threads N] PROGRAM [ARGUMENT...]\n"
      "\n"
      "Runs PROGRAM in N processes on this host, the ranks of one world. Each gets RANK,\n"
      "WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n"
      "\n"
      "  -n N             number of processes; by default NEURON_NUM_DEVICES,\n"
      "                   NEURONCORE_NUM_DEVICES, or 1\n"
      "  --omp-threads N  OMP_NUM_THREADS of each; by default as it is, or 1 when N is more than "
      "1\n"
      "  -h, --help       this text\n"
      "\n"
      "The exit code is 0 when all processes end with 0, and otherwise that of the first one that\n"
      "fails, or 128 and the number of the signal that ended it. The others are then given some\n"
      "seconds to report, and are ended. 127: PROGRAM cannot be started. SIGINT and SIGTERM are\n"
      "passed on; a second one ends the processes at once.\n",
      out);
}

/* True if the text is a number of processes or threads, which is then stored. */
static int parse_number(const char* option, const char* text, int32_t* out) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  *out = (int32_t)value;
  if (*text && *end == '\0' && value > 0 && value <= 65536) return 1;
  fprintf(stderr, "nxdrun: %s: expected a number from 1 to 65536, got %s\n", option, text);
  return 0;
}

/* Index of the program in argv; 0 after --help, -1 when the arguments are wrong. */
static int parse(int argc, char** argv, nxd_spawn_options_t* options) {
  static const struct option known[] = {{"omp-threads", required_argument, NULL, 't'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  /* The plus: what follows the program is the program's. */
  for (int c; (c = getopt_long(argc, argv, "+n:h", known, NULL)) != -1;) {
    if (c == 'h') return 0;
    if (c == '?') return -1;
    if (!(c == 'n' ? parse_number("-n", optarg, &options->num_processes)
                   : parse_number("--omp-threads", optarg, &options->omp_num_threads))) {
      return -1;
    }
  }
  if (optind < argc) return optind;
  fputs("nxdrun: no program was given\n", stderr);
  return -1;
}

/* Waits while passing signals on. A second SIGINT or SIGTERM ends the job the hard way. */
static nxd_status_t supervise(nxd_job_t* job) {
  int ends = 0;
  for (;;) {
    const nxd_status_t status = nxd_job_wait(job, 50);
    if (received) {
      const int signal_number = received;
      received = 0;
      if ((signal_number == SIGINT || signal_number == SIGTERM) && ++ends > 1) {
        nxd_job_kill(job, SIGKILL);
      } else {
        nxd_job_kill(job, signal_number);
      }
    }
    if (status != NXD_ERROR_TIMEOUT) return status;
  }
}

static int exit_code_of(nxd_job_t* job) {
  nxd_error_info_t info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  int32_t running = 0, code = 0;
  if (nxd_last_error_info(&info) != NXD_OK || info.root_rank < 0) return 1;
  if (nxd_job_get_exit_code(job, info.root_rank, &running, &code) != NXD_OK) return 1;
  return code ? code : 1;
}

int main(int argc, char** argv) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  const int program = parse(argc, argv, &options);
  if (program == 0) {
    usage(stdout);
    return 0;
  }
  if (program < 0) {
    usage(stderr);
    return 2;
  }
  for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; ++i) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = remember;
    sigaction(forwarded[i], &action, NULL);
  }
  options.argv = (const char* const*)(argv + program);
  nxd_job_t* job = NULL;
  if (nxd_spawn(&options, &job) != NXD_OK) {
    fprintf(stderr, "nxdrun: %s\n", nxd_last_error());
    return 127;
  }
  int code = 0;
  if (supervise(job) != NXD_OK) {
    fprintf(stderr, "nxdrun: %s\n", nxd_last_error());
    code = exit_code_of(job);
  }
  nxd_job_destroy(job);
  return code;
}
