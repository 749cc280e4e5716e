/* Definitions that the shims share: the outcome of a call, taken on the thread that made it. */
#ifndef NXDGO_H
#define NXDGO_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"

/* A failed call, copied; group, operation and message are in one block with it. */
typedef struct nxdgo_error {
  int32_t status;
  int32_t root_rank;
  int32_t parameters;
  uint64_t sequence;
  int64_t step;
  uintptr_t cause; /* handle of a Go error; 0: none */
  const char* group;
  const char* operation;
  const char* message;
} nxdgo_error_t;

/* Where a callback that fails leaves the handle of its Go error for the call it was made from: on
 * the same thread, in storage of package raw. Each Go file has these definitions in C of its own,
 * and the linker keeps one pointer for all. Each package sets it at the start. */
__attribute__((weak, visibility("hidden"))) uintptr_t* (*nxdgo_cause)(void);

static inline void nxdgo_use_cause(uintptr_t function) {
  nxdgo_cause = (uintptr_t * (*)(void)) function;
}

static const char* nxdgo_append(char** at, const char* text) {
  const size_t size = strlen(text) + 1;
  char* copy = memcpy(*at, text, size);
  *at += size;
  return copy;
}

/* Also for a call that went well although a callback had failed: its Go error is let go. */
static nxdgo_error_t* nxdgo_take(nxd_status_t status) {
  uintptr_t* cause = nxdgo_cause();
  nxd_error_info_t info = {0};
  const char* message = status == NXD_OK ? "" : nxd_last_error();
  info.struct_size = sizeof info;
  info.root_rank = -1;
  info.step = -1;
  if (status != NXD_OK) (void)nxd_last_error_info(&info);
  if (!info.group) info.group = "";
  if (!info.operation) info.operation = "";
  const size_t text = strlen(info.group) + strlen(info.operation) + strlen(message) + 3;
  nxdgo_error_t* e = malloc(sizeof *e + text);
  if (!e) abort(); /* a few hundred bytes: Go's own allocator ends the program here too */
  char* at = (char*)(e + 1);
  e->status = status;
  e->root_rank = info.root_rank;
  e->parameters = info.parameters;
  e->sequence = info.sequence;
  e->step = info.step;
  e->cause = *cause;
  e->group = nxdgo_append(&at, info.group);
  e->operation = nxdgo_append(&at, info.operation);
  e->message = nxdgo_append(&at, message);
  *cause = 0;
  return e;
}

static inline nxdgo_error_t* nxdgo_outcome(nxd_status_t status) {
  return status == NXD_OK && !*nxdgo_cause() ? NULL : nxdgo_take(status);
}

#endif /* NXDGO_H */
