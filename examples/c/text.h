/* Text to train on. */
#ifndef NXD_EXAMPLES_TEXT_H
#define NXD_EXAMPLES_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  unsigned char* bytes;
  size_t size;
} text_t;

/* Reads a file, or with NULL the licence texts that Debian installs, in order of their names.
 * 1, or 0 after a message on stderr. */
int text_read(const char* path, text_t* out);
void text_free(text_t* text);

/* A file with a terminating 0, to be freed; NULL after a message on stderr. */
char* read_whole_file(const char* path, size_t* out_size);

/* Numbers of width 1 or 2 bytes, the least byte first: those that are there, and those of a file.
 * To be freed; NULL after a message on stderr. */
int64_t* ids_of_bytes(const unsigned char* bytes, size_t size, size_t width, size_t* out_count);
int64_t* ids_read(const char* path, size_t width, size_t* out_count);

#endif
