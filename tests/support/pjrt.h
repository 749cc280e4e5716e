/* The PJRT plug-in that tests run with: NXD_PJRT_PLUGIN, or the one of scripts/fetch_pjrt_cpu. */
#ifndef NXD_TESTS_SUPPORT_PJRT_H
#define NXD_TESTS_SUPPORT_PJRT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kNoPjrtPlugin = 77 }; /* exit code of a test that was skipped */

/* Path of the plug-in. NULL where there is none, after a line that says what to do. */
static inline const char* nxd_test_pjrt_plugin(void) {
  static char path[4096];
  const char* given = getenv("NXD_PJRT_PLUGIN");
  const char* cache = getenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  if (given && *given) return given;
  snprintf(path, sizeof path, "%s%s/nxd/pjrt/xla-cpu-pjrt-0.0.1/xla_cpu_pjrt.so",
           cache && *cache ? cache
           : home          ? home
                           : "",
           cache && *cache ? "" : "/.cache");
  if (access(path, R_OK) == 0) return path;
  printf("skip: PJRT plug-in for the CPU: there is no %s; run scripts/fetch_pjrt_cpu\n", path);
  return NULL;
}

/* With NXD_TEST_AS_NEURON set, another name of the plug-in's file beside it, which makes it
   Neuron's to the library: programs are then written for that. The path itself without, and NULL
   after a line where there can be no such name. */
static inline const char* nxd_test_as_neuron(const char* path) {
  static char named[4200];
  const char* slash = path ? strrchr(path, '/') : NULL;
  if (!getenv("NXD_TEST_AS_NEURON") || !path) return path;
  if (slash) {
    snprintf(named, sizeof named, "%.*s/libneuronpjrt.so", (int)(slash - path), path);
    if (link(path, named) == 0 || errno == EEXIST) return named;
  }
  printf(
      "skip: programs written for Neuron: %s takes no other name; copy it to a directory that can "
      "be written, and set NXD_PJRT_PLUGIN\n",
      path);
  return NULL;
}

/* For programs that are run once for each backend of device XLA. Names the plug-in to the library
   when NXD_XLA_BACKEND asks for pjrt. 0, or the exit code of a test that was skipped. */
static inline int nxd_test_set_pjrt_plugin(void) {
  const char* backend = getenv("NXD_XLA_BACKEND");
  const char* path;
  if (!backend || strcmp(backend, "pjrt") != 0) return 0;
  path = nxd_test_as_neuron(nxd_test_pjrt_plugin());
  if (!path) return kNoPjrtPlugin;
  return setenv("NXD_PJRT_PLUGIN", path, 1);
}

#endif
