/* Signals that nxdrun gets: Ctrl-C of a terminal, the terminal's end, one that is ignored from the
 * start, several at once, and two to end that are one, of which each rank has each once, and
 * SIGTERM. */
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/command.h"
#include "support/paths.h"
#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

static char self[4096];
static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void be_ready(void) {
  puts("ready");
  fflush(stdout);
}

/* The signals that a rank is to have, in this order, and no more. */
static const struct part {
  const char* name;
  int count;
  int signals[2];
} parts[] = {{"terminal", 1, {SIGINT}},          {"hangup", 1, {SIGHUP}}, {"ignored", 1, {SIGUSR1}},
             {"several", 2, {SIGUSR1, SIGUSR2}}, {"twice", 1, {SIGTERM}}, {"both", 1, {SIGINT}}};

/* A rank's part, whose exit code is 0 when it has what it is to have, and says else what it had. It
 * blocks the signals, and takes them one at a time: TSan's runtime loses some of those that come to
 * a handler. */
static int rank_of(const char* name) {
  const struct part* part = parts;
  while (strcmp(part->name, name) != 0) ++part;
  static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  sigset_t blocked;
  sigemptyset(&blocked);
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) sigaddset(&blocked, all[i]);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  struct sigaction action;
  if (sigaction(SIGHUP, NULL, &action) != 0) return 3;
  if ((action.sa_handler == SIG_IGN) != !strcmp(name, "ignored")) return 4;
  /* The terminal does not signal the other session's. */
  if (!strcmp(name, "terminal") && atoi(getenv("RANK")) == 1) setsid();
  be_ready();
  for (int i = 0; i < part->count; ++i) {
    const int number = sigtimedwait(&blocked, NULL, &(struct timespec){60, 0});
    if (number != part->signals[i]) return 100 + number;
    if (!strcmp(name, "twice") || !strcmp(name, "both")) be_ready();
  }
  const int more = sigtimedwait(&blocked, NULL, &(struct timespec){1, 0});
  return more < 0 ? 0 : 200 + more;
}

/* The exit code of nxdrun, once it has ended: it reads what the ranks write until then. */
static int end_of(pid_t child, int output) {
  char rest[512];
  while (read(output, rest, sizeof rest) > 0) continue;
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  close(output);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Returns when both ranks have said that they are ready. */
static void await_ready(const char* part, int terminal) {
  char said[4096] = "";
  size_t size = 0;
  for (const char* first = NULL; !(first = strstr(said, "ready")) || !strstr(first + 1, "ready");) {
    const ssize_t n = read(terminal, said + size, sizeof said - 1 - size);
    if (n <= 0) fail_msg("%s: the ranks are not ready: %s", part, said);
    size += (size_t)n;
  }
}

/* nxdrun with two ranks of this program, at a terminal of its own. It returns when both are ready.
 */
static pid_t start(const char* part, int ignored, int* terminal) {
  const char* nxdrun = getenv("NXDRUN");
  const pid_t child = forkpty(terminal, NULL, NULL, NULL);
  assert_true(child >= 0);
  if (child == 0) {
    setenv("NXD_TEST_PART", part, 1);
    if (ignored) signal(ignored, SIG_IGN);
    execl(nxdrun, nxdrun, "-n", "2", self, NULL);
    _exit(126);
  }
  await_ready(part, *terminal);
  return child;
}

static void of_a_terminal(void** state) {
  (void)state;
  int terminal = -1;
  const pid_t child = start("terminal", 0, &terminal);
  assert_int_equal(write(terminal, "\x03", 1), 1);
  assert_int_equal(end_of(child, terminal), 0);
}

/* The kernel tells the session's leader alone, which nxdrun is, as under `ssh -t HOST nxdrun`. */
static void end_of_a_terminal(void** state) {
  (void)state;
  int terminal = -1, status = -1;
  const pid_t child = start("hangup", 0, &terminal);
  close(terminal);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void ignored_from_the_start(void** state) {
  (void)state;
  int terminal = -1;
  const pid_t child = start("ignored", SIGHUP, &terminal);
  kill(child, SIGHUP);
  kill(child, SIGUSR1);
  assert_int_equal(end_of(child, terminal), 0);
}

static void several_at_once(void** state) {
  (void)state;
  int terminal = -1;
  const pid_t child = start("several", 0, &terminal);
  kill(child, SIGUSR1);
  kill(child, SIGUSR2);
  assert_int_equal(end_of(child, terminal), 0);
}

/* As timeout sends it: to nxdrun, and to the group that nxdrun is in. Beside much other work the
 * second may come too late to be one with the first, and is left out. */
static void two_of_one_process(const char* part, int first_signal) {
  int terminal = -1;
  const pid_t child = start(part, 0, &terminal);
  const int64_t first = now_ms();
  kill(child, first_signal);
  await_ready(part, terminal);
  if (now_ms() - first < 300) kill(child, SIGTERM);
  assert_int_equal(end_of(child, terminal), 0);
}
static void twice_by_one_process(void** state) {
  (void)state;
  two_of_one_process("twice", SIGTERM);
}
/* As supervisors do that ask in more than one way. */
static void both_by_one_process(void** state) {
  (void)state;
  two_of_one_process("both", SIGINT);
}

/* After SIGTERM a rank has some seconds to save what it has. One that does not end is killed. */
static void ends_of_ranks(void** state) {
  (void)state;
  static const struct {
    const char *options, *trap, *more;
    int code;
    const char* message;
  } table[] = {
      {"--grace 1", "", "", 137, "processes still run 1 s after signal 15, and are killed"},
      {"", "sleep 2; exit 0", "", 0, ""},
      /* A second one does not wait. More are sent, for two at once may count as one. */
      {"--grace 3600", "", "while sleep 1; do kill -TERM $run; done; ", 137, "ended by signal 9"}};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    char command[2048], out[8192];
    snprintf(command, sizeof command,
             "timeout 60 " NXDRUN
             " -n 1 %s sh -c 'trap \"%s\" TERM; "
             "run=$(ps -o ppid= -p $PPID); kill -TERM $run; %swhile :; do sleep 0.1; done' 2>&1",
             table[i].options, table[i].trap, table[i].more);
    const int code = run_command(command, out, sizeof out);
    if (code != table[i].code || !strstr(out, table[i].message)) {
      fail_msg("%s: exit code %d: %s", command, code, out);
    }
  }
  char out[512];
  assert_int_equal(run_command(NXDRUN " --grace never true 2>&1", out, sizeof out), 2);
  assert_non_null(strstr(out, "--grace: expected a number from 1 to 65536, got never"));
}

int main(void) {
  const char* part = getenv("NXD_TEST_PART");
  if (part && getenv("RANK")) return rank_of(part);
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  char nxdrun[4096];
  snprintf(nxdrun, sizeof nxdrun, "%s/tools/nxdrun", nxd_test_binaries);
  setenv("NXDRUN", nxdrun, 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_a_terminal),          cmocka_unit_test(end_of_a_terminal),
      cmocka_unit_test(ignored_from_the_start), cmocka_unit_test(several_at_once),
      cmocka_unit_test(twice_by_one_process),   cmocka_unit_test(both_by_one_process),
      cmocka_unit_test(ends_of_ranks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
