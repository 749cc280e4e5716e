/* Two hosts on one machine. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fault.h"

/* Rank 0 serves the store, and every split has it on the first host. */
static const char* const addresses[2] = {"10.77.3.1", "10.77.3.2"};
enum { kFirstPort = 29500, kPorts = 1000 };

__attribute__((format(printf, 1, 2))) static int run_command(const char* format, ...) {
  char command[128];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  return system(command) == 0;
}

static void end_process(int64_t pid, int signal_number) {
  kill((pid_t)pid, signal_number);
  while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR) {
  }
}

/* Says "up" on its standard output. */
static pid_t start_relay(const fault_link_t* link, int* out_read) {
  char networks[2][32];
  for (int host = 0; host < 2; ++host)
    snprintf(networks[host], sizeof networks[host], "%s/24", addresses[host]);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t relay = fork();
  if (relay == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    /* An interrupt of the terminal is for the driver, which ends the relay. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    dup2(ends[1], STDOUT_FILENO);
    execlp("python3", "python3", NXD_EMULATED_LINK, link->names[0], networks[0], link->names[1],
           networks[1], "--delay", "1", "--mtu", "9000", (char*)NULL);
    _exit(127);
  }
  close(ends[1]);
  *out_read = ends[0];
  return relay;
}

static int is_up(int fd) {
  char said[3];
  size_t n = 0;
  while (n < sizeof said) {
    const ssize_t got = read(fd, said + n, sizeof said - n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    n += (size_t)got;
  }
  return memcmp(said, "up\n", sizeof said) == 0;
}

int fault_link_open(fault_link_t* link, char* why, size_t cap) {
  memset(link, 0, sizeof *link);
  const char* missing = NULL;
  if (geteuid() != 0) missing = "network namespaces need root";
  if (!missing && access("/dev/net/tun", R_OK | W_OK) != 0) missing = "no /dev/net/tun here";
  if (!missing && !run_command("command -v ip > /dev/null && command -v python3 > /dev/null"))
    missing = "no ip or python3 here";
  for (int host = 0; host < 2 && !missing; ++host) {
    snprintf(link->names[host], sizeof link->names[host], "nxdfault%d%c", (int)getpid(),
             "ab"[host]);
    if (!run_command("ip netns add %s 2> /dev/null", link->names[host])) {
      link->names[host][0] = '\0';
      missing = "network namespaces are not permitted here";
    }
  }
  if (!missing) {
    int said = -1;
    link->relay = start_relay(link, &said);
    if (link->relay < 0 || !is_up(said)) missing = "the emulated link does not start";
    if (said >= 0) close(said);
  }
  if (!missing) return 1;
  snprintf(why, cap, "%s", missing);
  fault_link_close(link);
  return 0;
}

void fault_link_close(fault_link_t* link) {
  if (link->relay > 0) end_process(link->relay, SIGTERM);
  for (int host = 0; host < 2; ++host)
    if (link->names[host][0]) run_command("ip netns del %s", link->names[host]);
  memset(link, 0, sizeof *link);
}

void fault_link_cut(const fault_link_t* link) { kill((pid_t)link->relay, SIGUSR1); }
void fault_link_mend(const fault_link_t* link) { kill((pid_t)link->relay, SIGUSR2); }

static int enter(const char* name) {
  char path[64];
  snprintf(path, sizeof path, "/run/netns/%s", name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const int entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) close(fd);
  return entered;
}

/* Serves the store on the first host, as a launcher's agent does. */
static pid_t start_agent(const fault_link_t* link, int port) {
  const pid_t agent = fork();
  if (agent != 0) return agent;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  nxd_store_t* store = NULL;
  if (!enter(link->names[0]) ||
      nxd_store_create_tcp(addresses[0], port, 1, 10000, &store) != NXD_OK)
    _exit(1);
  for (;;) pause();
}

int fault_link_begin_run(fault_link_t* link, int agent) {
  char text[96];
  const int port = kFirstPort + link->runs++ % kPorts;
  snprintf(text, sizeof text, "%s %s %d %d", link->names[0], link->names[1], port, agent);
  setenv("NXD_FAULT_LINK", text, 1);
  if (agent) link->agent = start_agent(link, port);
  return link->agent >= 0;
}

void fault_link_end_run(fault_link_t* link) {
  if (link->agent > 0) end_process(link->agent, SIGKILL);
  link->agent = 0;
  fault_link_mend(link);
}

int fault_link_enter(int host) {
  char names[2][32], port[8];
  int agent = 0;
  if (sscanf(getenv("NXD_FAULT_LINK"), "%31s %31s %7s %d", names[0], names[1], port, &agent) != 4)
    return 0;
  /* As a launcher of several hosts says it. Without an agent it leaves the store to rank 0. */
  setenv("MASTER_ADDR", addresses[0], 1);
  setenv("MASTER_PORT", port, 1);
  static const char* const of_one_host[] = {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "NXD_SPAWNED"};
  for (size_t i = 0; i < sizeof of_one_host / sizeof *of_one_host; ++i) unsetenv(of_one_host[i]);
  if (!agent) unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  return enter(names[host]);
}
