#define _DEFAULT_SOURCE
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LICENCES "/usr/share/common-licenses"

/* A directory opens as a file does, and tells of a size that it has not. */
static FILE* open_to_read(const char* path) {
  struct stat found;
  FILE* file = fopen(path, "rb");
  if (!file || fstat(fileno(file), &found) != 0 || !S_ISDIR(found.st_mode)) return file;
  fclose(file);
  errno = EISDIR;
  return NULL;
}

char* read_whole_file(const char* path, size_t* out_size) {
  FILE* file = open_to_read(path);
  char* data = NULL;
  long size = -1;
  if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
    rewind(file);
    data = malloc((size_t)size + 1);
  }
  if (data && fread(data, 1, (size_t)size, file) != (size_t)size) {
    free(data);
    data = NULL;
  }
  if (file) fclose(file);
  if (!data) {
    fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
    return NULL;
  }
  data[size] = '\0';
  if (out_size) *out_size = (size_t)size;
  return data;
}

/* Links are other names of files that are there under their own. Some file systems do not tell of
 * which type an entry of a directory is, so the file itself is asked. */
static int is_plain_file(const char* path) {
  struct stat found;
  return lstat(path, &found) == 0 && S_ISREG(found.st_mode);
}

static int append(text_t* text, const char* path) {
  size_t size = 0;
  char* data = read_whole_file(path, &size);
  if (!data) return 0;
  unsigned char* grown = realloc(text->bytes, text->size + size + 1);
  if (!grown) {
    fprintf(stderr, "no memory for the text of %s\n", path);
  } else {
    memcpy(grown + text->size, data, size);
    text->bytes = grown;
    text->size += size;
  }
  free(data);
  return grown != NULL;
}

int text_read(const char* path, text_t* out) {
  struct dirent** entries = NULL;
  int good = 1;
  out->bytes = NULL;
  out->size = 0;
  if (path) return append(out, path);
  const int count = scandir(LICENCES, &entries, NULL, alphasort);
  for (int i = 0; i < count; ++i) {
    char name[512];
    snprintf(name, sizeof name, "%s/%s", LICENCES, entries[i]->d_name);
    if (good && is_plain_file(name)) good = append(out, name);
    free(entries[i]);
  }
  free(entries);
  if (good && out->size == 0) {
    fprintf(stderr, "no texts in %s; name one with --text\n", LICENCES);
    return 0;
  }
  return good;
}

void text_free(text_t* text) {
  free(text->bytes);
  text->bytes = NULL;
  text->size = 0;
}

int64_t* ids_of_bytes(const unsigned char* bytes, size_t size, size_t width, size_t* out_count) {
  const size_t count = size / width;
  int64_t* ids = malloc((count + 1) * sizeof *ids);
  for (size_t i = 0; ids && i < count; ++i) {
    const unsigned char* at = bytes + i * width;
    ids[i] = width == 2 ? at[0] + 256 * at[1] : at[0];
  }
  if (!ids) fprintf(stderr, "no memory for %zu ids\n", count);
  *out_count = ids ? count : 0;
  return ids;
}

int64_t* ids_read(const char* path, size_t width, size_t* out_count) {
  size_t size = 0;
  *out_count = 0;
  char* bytes = read_whole_file(path, &size);
  if (!bytes) return NULL;
  int64_t* ids = ids_of_bytes((const unsigned char*)bytes, size, width, out_count);
  free(bytes);
  return ids;
}
