/* The directory that a program writes its results to. */
#ifndef NXD_EXAMPLES_OUTPUT_DIRECTORY_H
#define NXD_EXAMPLES_OUTPUT_DIRECTORY_H

#include "nxd.h"

/* Rank 0 makes a directory, and its parents, unless it is there. All ranks call it before they
 * train, so that a name that cannot be written to costs no training. 1, or 0 on all ranks after a
 * message on stderr. */
int make_output_directory(nxd_context_t* ctx, const char* path);

/* The same of the directory that a file is to lie in. */
int make_directory_of_output(nxd_context_t* ctx, const char* file);

#endif
