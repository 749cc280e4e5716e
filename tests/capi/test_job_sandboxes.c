/* Jobs in sandboxes that lack what a job needs: the error comes at once, and says what is missing.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"
#include "support/sanitized.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kNoSandbox = 99 };

static char self[4096];

/* For who is not root, a namespace of users gives the right to make the other one. */
static int enter(int namespace) {
  return unshare(namespace) == 0 || unshare(CLONE_NEWUSER | namespace) == 0;
}

/* This program's part in the sandbox: the exit code. */
static int spawn_in(const char* sandbox) {
  nxd_job_t* job = NULL;
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = 2;
  if (!strcmp(sandbox, "no /proc")) {
    NXD_TEST_REFUSED(nxd_spawn(&options, &job), NXD_ERROR_IO, "expected /proc, or options.argv");
    return nxd_test_failures();
  }
  NXD_TEST_REFUSED(nxd_spawn(&options, &job), NXD_ERROR_IO, "expected its loopback to be up");
  const char* const argv[] = {"/bin/true", NULL};
  options.num_processes = 1; /* needs nobody */
  options.argv = argv;
  NXD_TEST_OK(nxd_spawn(&options, &job));
  NXD_TEST_OK(nxd_job_wait(job, 60000));
  nxd_job_destroy(job);
  return nxd_test_failures();
}

static void run_in(const char* sandbox, int namespace) {
  const pid_t child = fork();
  if (child == 0) {
    if (!enter(namespace)) _exit(kNoSandbox);
    if (namespace == CLONE_NEWNS && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
      _exit(kNoSandbox);
    }
    if (namespace == CLONE_NEWNS && mount("none", "/proc", "tmpfs", 0, NULL) != 0) {
      _exit(kNoSandbox);
    }
    setenv("NXD_TEST_SANDBOX", sandbox, 1);
    execl(self, self, NULL);
    _exit(98);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSandbox) {
    printf("skip: a job with %s: no namespaces here; run as root\n", sandbox);
    skip();
  }
  assert_int_equal(status, 0);
}

static void without_loopback(void** state) {
  (void)state;
  run_in("no loopback", CLONE_NEWNET);
}

static void without_proc(void** state) {
  (void)state;
  if (kSanitized) { /* sanitizers do not start there */
    skip();
  }
  run_in("no /proc", CLONE_NEWNS);
}

int main(void) {
  const char* sandbox = getenv("NXD_TEST_SANDBOX");
  if (sandbox) return spawn_in(sandbox);
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_loopback),
                                     cmocka_unit_test(without_proc)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
