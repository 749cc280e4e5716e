/* Resources of a process that a library may leak. */
#ifndef NXD_TESTS_SUPPORT_HOLDINGS_H
#define NXD_TESTS_SUPPORT_HOLDINGS_H

#include <stdint.h>

typedef struct {
  int64_t threads, descriptors, mappings; /* of shared memory */
} holdings_t;

holdings_t holdings(void);
/* Before the first count. */
void settle_threads(void);

#endif
