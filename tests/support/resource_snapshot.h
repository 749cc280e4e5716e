/* Resources of a process that a library may leak. */
#ifndef NXD_TESTS_SUPPORT_RESOURCE_SNAPSHOT_H
#define NXD_TESTS_SUPPORT_RESOURCE_SNAPSHOT_H

#include <stdint.h>

typedef struct {
  int64_t threads, descriptors, mappings; /* of shared memory */
} resource_snapshot_t;

resource_snapshot_t resource_snapshot(void);
/* Before the first count. */
void settle_threads(void);

#endif
