/* The end of a program whose result is what it has written. */
#ifndef NXD_TOOLS_STANDARD_OUTPUT_H
#define NXD_TOOLS_STANDARD_OUTPUT_H

#include <stdio.h>

/* The exit code, or 1 after a message where some of the output is lost, as on a full disk. */
static inline int end_output(const char* program, int code) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  fprintf(stderr, "%s: cannot write to the standard output\n", program);
  return 1;
}

#endif
