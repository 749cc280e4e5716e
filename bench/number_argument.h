/* Numbers on the command lines of measurements, which are C and C++. */
#ifndef NXD_BENCH_NUMBER_ARGUMENT_H
#define NXD_BENCH_NUMBER_ARGUMENT_H

#include <errno.h>
#include <stdlib.h>

/* 1 if all of the text is a number within the bounds, which is then stored. */
static inline int read_number(const char* text, long least, long most, long* out) {
  char* end = NULL;
  errno = 0;
  const long number = strtol(text, &end, 10);
  if (!*text || *end || errno || number < least || number > most) return 0;
  *out = number;
  return 1;
}

#endif
