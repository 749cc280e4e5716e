#pragma once

#include <stdio.h>
#include <sys/wait.h>

#define NXDRUN "\"$NXDRUN\"" /* in a command of the shell */

/* Runs a command and gives its exit code and what it wrote. */
static inline int run_command(const char* command, char* out, size_t cap) {
  FILE* f = popen(command, "r");
  const size_t size = fread(out, 1, cap - 1, f);
  out[size] = '\0';
  const int status = pclose(f);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
