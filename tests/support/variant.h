/* The same tests under other circumstances. */
#ifndef NXD_TESTS_SUPPORT_VARIANT_H
#define NXD_TESTS_SUPPORT_VARIANT_H

/* Such a run adds this to CMocka's runner. */
typedef struct {
  const char* (*why_not)(const char* test); /* NULL, or why a test is left out */
  void (*begin)(const char* test);
  int (*conclude)(void); /* failures that its end finds, if any test has run */
} nxd_test_variant_t;

/* Before main; the variant stays the caller's. */
void nxd_test_set_variant(const nxd_test_variant_t* variant);

#endif
