/* nxdrun: runs a program once per rank on this host. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nxd.h"
#include "standard_output.h"

enum { kForwarded = 5 };
static const int forwarded[kForwarded] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

enum { kNone, kOfTerminal, kOfProcess };

/* Ranks that are started after a terminal's signal do not have it by themselves. Until all run, one
 * is passed on as if a process had sent it. */
static volatile sig_atomic_t all_run;

/* Handlers alone write them, and others only while the signals are blocked. */
static struct {
  int sender; /* kNone: there is none to take */
  pid_t process;
  int64_t at;
} received[kForwarded];

/* In seconds, for ranks to save what they have: as torchrun and Slurm do. */
static const int32_t default_grace = 30;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int ends(int signal_number) { return signal_number == SIGINT || signal_number == SIGTERM; }

/* True if a process has sent a signal to end within a second. */
static int has_just_ended(pid_t process, int64_t now) {
  for (int i = 0; i < kForwarded; ++i) {
    if (!ends(forwarded[i]) || received[i].process != process) continue;
    if (now - received[i].at < 1000) return 1;
  }
  return 0;
}

/* The kernel itself sends the signals of a terminal's keys and of its end.
 *
 * timeout signals its child, and then its process group, where the child is again: two to end of
 * one process within a second are one. */
static void remember(int signal_number, siginfo_t* info, void* context) {
  (void)context;
  const int sender = info->si_code == SI_KERNEL && all_run ? kOfTerminal : kOfProcess;
  const pid_t process = sender == kOfProcess ? info->si_pid : 0;
  const int64_t now = now_ms();
  int i = 0;
  while (forwarded[i] != signal_number) ++i;
  if (process && ends(signal_number) && has_just_ended(process, now)) return;
  if (received[i].sender < sender) received[i].sender = sender;
  received[i].process = process;
  received[i].at = now;
}

/* A signal that was ignored at the start stays so, here and in the ranks: nohup asks for that, and
 * so does a shell that starts a command in the background. */
static void watch_signals(void) {
  for (int i = 0; i < kForwarded; ++i) {
    struct sigaction action;
    if (sigaction(forwarded[i], NULL, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = remember;
    action.sa_flags = SA_SIGINFO;
    sigaction(forwarded[i], &action, NULL);
  }
}

static void usage(FILE* out) {
  fputs(
      "usage: nxdrun [-n N] [--omp-threads N] [--grace S] PROGRAM [ARGUMENT...]\n"
      "\n"
      "Runs PROGRAM in N processes on this host, the ranks of one world. Each gets RANK,\n"
      "WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n"
      "\n"
      "  -n N             number of processes; by default NEURON_NUM_DEVICES,\n"
      "                   NEURONCORE_NUM_DEVICES, or 1\n"
      "  --omp-threads N  OMP_NUM_THREADS of each; by default as it is, or 1 when N is more than "
      "1\n"
      "  --grace S        seconds that the processes have to end after a SIGINT or SIGTERM; 30 by\n"
      "                   default\n"
      "  -h, --help       this text\n"
      "\n"
      "The exit code is 0 when all processes end with 0, and otherwise that of the first one that\n"
      "fails, or 128 and the number of the signal that ended it. The others are then given some\n"
      "seconds to report, and are ended. 127: PROGRAM cannot be started. SIGINT and SIGTERM are\n"
      "passed on; processes that do not end within the grace are killed, as by a second one at "
      "once.\n",
      out);
}

/* True if the text is a number of processes, threads or seconds, which is then stored. */
static int parse_number(const char* option, const char* text, int32_t* out) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  *out = (int32_t)value;
  if (*text && *end == '\0' && value > 0 && value <= 65536) return 1;
  fprintf(stderr, "nxdrun: %s: expected a number from 1 to 65536, got %s\n", option, text);
  return 0;
}

/* Index of the program in argv; 0 after --help, -1 when the arguments are wrong. */
static int parse(int argc, char** argv, nxd_spawn_options_t* options, int32_t* grace) {
  static const struct option known[] = {{"omp-threads", required_argument, NULL, 't'},
                                        {"grace", required_argument, NULL, 'g'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  /* The plus: what follows the program is the program's. */
  for (int c; (c = getopt_long(argc, argv, "+n:h", known, NULL)) != -1;) {
    if (c == 'h') return 0;
    if (c == '?') return -1;
    if (!(c == 'n'   ? parse_number("-n", optarg, &options->num_processes)
          : c == 'g' ? parse_number("--grace", optarg, grace)
                     : parse_number("--omp-threads", optarg, &options->omp_num_threads))) {
      return -1;
    }
  }
  if (optind < argc) return optind;
  fputs("nxdrun: no program was given\n", stderr);
  return -1;
}

/* A terminal signals all processes of its group, ranks among them. They are not to have it twice: a
 * second Ctrl-C means more than the first to many programs. Its end is told to the
 * session's leader alone. */
static void forward(nxd_job_t* job, int signal_number, int sender) {
  int32_t size = 0, running = 0, code = 0;
  int64_t pid = 0;
  if (sender == kOfProcess || (signal_number == SIGHUP && getsid(0) == getpid())) {
    nxd_job_kill(job, signal_number);
    return;
  }
  if (nxd_job_get_size(job, &size) != NXD_OK) return;
  for (int32_t rank = 0; rank < size; ++rank) {
    if (nxd_job_get_exit_code(job, rank, &running, &code) != NXD_OK || !running) continue;
    if (nxd_job_get_pid(job, rank, &pid) != NXD_OK || getpgid((pid_t)pid) == getpgrp()) continue;
    kill((pid_t)pid, signal_number);
  }
}

/* When the job has to end. */
typedef struct {
  int32_t grace;
  int ended_by; /* the first SIGINT or SIGTERM */
  int64_t killed_at;
} end_t;

/* The senders of signals that came since the last call. */
static void take_received(int senders[kForwarded]) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  for (int i = 0; i < kForwarded; ++i) {
    senders[i] = received[i].sender;
    received[i].sender = kNone;
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Two that have come together are one. */
static void take_signals(nxd_job_t* job, end_t* end) {
  const int had_one = end->ended_by != 0;
  int senders[kForwarded];
  take_received(senders);
  for (int i = 0; i < kForwarded; ++i) {
    if (senders[i] == kNone) continue;
    if (ends(forwarded[i]) && had_one) {
      nxd_job_kill(job, SIGKILL);
      continue;
    }
    forward(job, forwarded[i], senders[i]);
    if (!ends(forwarded[i])) continue;
    end->ended_by = forwarded[i];
    end->killed_at = now_ms() + (int64_t)end->grace * 1000;
  }
}

/* Waits while passing signals on. A second SIGINT or SIGTERM ends the job the hard way, and so does
 * the time after the first: ranks may ignore it, or have no thread that takes it. */
static nxd_status_t supervise(nxd_job_t* job, int32_t grace) {
  end_t end = {grace, 0, INT64_MAX};
  for (;;) {
    const nxd_status_t status = nxd_job_wait(job, 50);
    if (status != NXD_ERROR_TIMEOUT) return status;
    take_signals(job, &end);
    if (now_ms() < end.killed_at) continue;
    fprintf(stderr, "nxdrun: processes still run %d s after signal %d, and are killed\n",
            (int)grace, end.ended_by);
    nxd_job_kill(job, SIGKILL);
    end.killed_at = INT64_MAX;
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
  int32_t grace = default_grace;
  const int program = parse(argc, argv, &options, &grace);
  if (program == 0) {
    usage(stdout);
    return end_output("nxdrun", 0);
  }
  if (program < 0) {
    usage(stderr);
    return 2;
  }
  watch_signals();
  options.argv = (const char* const*)(argv + program);
  nxd_job_t* job = NULL;
  if (nxd_spawn(&options, &job) != NXD_OK) {
    fprintf(stderr, "nxdrun: %s\n", nxd_last_error());
    return 127;
  }
  all_run = 1;
  int code = 0;
  if (supervise(job, grace) != NXD_OK) {
    fprintf(stderr, "nxdrun: %s\n", nxd_last_error());
    code = exit_code_of(job);
  }
  nxd_job_destroy(job);
  return code;
}
