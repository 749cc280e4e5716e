#define _POSIX_C_SOURCE 200809L
#include "output_directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_writable(const char* path) {
  struct stat found;
  if (stat(path, &found) != 0) return 0;
  if (!S_ISDIR(found.st_mode)) errno = ENOTDIR;
  return S_ISDIR(found.st_mode) && access(path, W_OK | X_OK) == 0;
}

/* A parent may be there already and forbid an attempt to make it; the last mkdir or stat tells. */
static int make_directories(const char* path) {
  char* parent = malloc(strlen(path) + 1);
  if (!parent) return 0;
  strcpy(parent, path);
  for (char* c = parent; *c; ++c) {
    if (*c != '/' || c == parent) continue;
    *c = '\0';
    mkdir(parent, 0777);
    *c = '/';
  }
  free(parent);
  return mkdir(path, 0777) == 0 || (errno == EEXIST && is_writable(path));
}

int make_output_directory(nxd_context_t* ctx, const char* path) {
  nxd_group_t* world = NULL;
  int32_t rank = 0, good = 1;
  nxd_status_t status = nxd_context_get_rank(ctx, &rank);
  if (status == NXD_OK) status = nxd_context_get_world_group(ctx, &world);
  if (status == NXD_OK && rank == 0 && !make_directories(path)) {
    fprintf(stderr, "cannot write to the directory %s: %s\n", path, strerror(errno));
    good = 0;
  }
  if (status == NXD_OK) status = nxd_broadcast(world, &good, 1, NXD_DTYPE_I32, 0);
  if (status != NXD_OK) {
    fprintf(stderr, "directory: %s: %s\n", nxd_status_string(status), nxd_last_error());
    return 0;
  }
  return good;
}

int make_directory_of_output(nxd_context_t* ctx, const char* file) {
  const char* name = strrchr(file, '/');
  if (!name) return make_output_directory(ctx, ".");
  const size_t length = name == file ? 1 : (size_t)(name - file);
  char* path = malloc(length + 1);
  if (!path) {
    fprintf(stderr, "no memory for the directory of %s\n", file);
    return 0;
  }
  memcpy(path, file, length);
  path[length] = '\0';
  const int good = make_output_directory(ctx, path);
  free(path);
  return good;
}
