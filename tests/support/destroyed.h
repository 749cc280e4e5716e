#pragma once

/* How often callbacks' user_data was let go of: a destroy callback that counts. */
static int nxd_test_destroyed;

static inline void nxd_test_count_destroyed(void* user_data) {
  (void)user_data;
  ++nxd_test_destroyed;
}
