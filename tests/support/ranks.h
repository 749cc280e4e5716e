/* Ranks for tests: threads of this process, each with a context of one shared store. */
#ifndef NXD_TESTS_SUPPORT_RANKS_H
#define NXD_TESTS_SUPPORT_RANKS_H

#include "nxd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The body of each rank. A failed check is reported with nxd_test_fail, never with CMocka's own
 * assertions, which jump and may only do so on the main thread. */
typedef void (*nxd_test_rank_fn)(nxd_context_t* ctx, int rank, int size, void* user_data);

/* Runs size ranks as threads with tensor_parallel_size tp (0: no nxd_init_model_parallel), joins
 * them, and fails the running CMocka test when any of them reported a failure. */
void nxd_test_run_ranks(int size, int tp, nxd_test_rank_fn fn, void* user_data);

/* The same with options; options->rank, size and store are set for each rank. */
void nxd_test_run_ranks_with(const nxd_context_options_t* options, int size, int tp,
                             nxd_test_rank_fn fn, void* user_data);

/* Reports a failure, from any thread; the caller goes on. The test that runs then fails at its end,
 * by its own name: nobody needs to look at nxd_test_failures for that. */
void nxd_test_fail(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reports a call that did not give NXD_OK. */
int nxd_test_ok(const char* file, int line, const char* call, nxd_status_t status);
#define NXD_TEST_OK(call) nxd_test_ok(__FILE__, __LINE__, #call, (call))

/* Reports a call that did not give the expected status, or whose message lacks a part. */
int nxd_test_refused(const char* file, int line, const char* call, nxd_status_t status,
                     nxd_status_t expected, const char* message_part);
#define NXD_TEST_REFUSED(call, expected, part) \
  nxd_test_refused(__FILE__, __LINE__, #call, (call), (expected), (part))

#define NXD_TEST_CHECK(condition) \
  ((condition) ? 1 : (nxd_test_fail(__FILE__, __LINE__, "%s", #condition), 0))

/* Number of failures reported so far in this process. */
int nxd_test_failures(void);

#ifdef __cplusplus
}
#endif

#endif
