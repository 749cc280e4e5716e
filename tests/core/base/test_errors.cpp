// How failures come out of the library: statuses that are none, exceptions of callbacks, threads
// that cannot be made, and threads that are cancelled in the middle of a call.
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "capi/handles.h"
#include "core/base/last_error.h"
#include "core/base/uncancelled.h"
#include "core/comm/store/local_store.h"
#include "core/kernels/elementwise.h"

#include "support/check.h"
#include "support/ranks.h"

namespace {

void a_success_is_no_error(void**) {
  const nxd::Error error(NXD_OK, "moved no data");
  assert_int_equal(error.status(), NXD_ERROR_INTERNAL);
  assert_non_null(std::strstr(error.what(), "moved no data"));
  assert_int_equal(nxd::guard([&] { throw nxd::Error(NXD_OK, "moved no data"); }),
                   NXD_ERROR_INTERNAL);
  for (nxd_status_t status = NXD_ERROR_USER; status < NXD_OK; ++status) {
    assert_int_equal(nxd::Error(status, "").status(), status);
    assert_true(nxd::is_error(status));
  }
  for (const nxd_status_t status : {int{NXD_OK}, 1, 7, INT32_MAX, -13, INT32_MIN}) {
    assert_false(nxd::is_error(status));
  }
}

void a_thread_that_cannot_start_says_why(void**) {
  const auto status = nxd::guard([] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  assert_int_equal(status, NXD_ERROR_OUT_OF_MEMORY);
  assert_non_null(std::strstr(nxd_last_error(), "cannot start a thread"));
}

// --- Callbacks -----------------------------------------------------------------------------------

enum class How { kAnswersSeven, kAnswersMinusHundred, kThrows, kThrowsNumber, kEndlessValue };

nxd_status_t misbehave(void* how) {
  switch (*static_cast<How*>(how)) {
    case How::kAnswersSeven: return 7;
    case How::kAnswersMinusHundred: return -100;
    case How::kThrows: throw std::runtime_error("the database is away");
    case How::kThrowsNumber: throw 5;
    default: return NXD_OK;
  }
}
nxd_status_t set(const char*, const uint8_t*, size_t, void* how) { return misbehave(how); }
nxd_status_t add(const char*, int64_t, int64_t*, void* how) { return misbehave(how); }
nxd_status_t get(const char*, uint8_t*, size_t, size_t* size, int32_t* found, void* how) {
  *size = SIZE_MAX;
  *found = 1;
  return misbehave(how);
}

void callbacks_of_a_store(void**) {
  How how = How::kThrows;
  const nxd_store_callbacks_t callbacks = {sizeof callbacks, &how, nullptr, set, get, add};
  nxd_store_t* store = nullptr;
  assert_int_equal(nxd_store_create_callbacks(&callbacks, &store), NXD_OK);
  const auto check = [&](nxd_status_t status, const char* part) {
    char buf[8];
    size_t size = 0;
    int64_t sum = 0;
    const int before = nxd_test_failures();
    if (how != How::kEndlessValue) {
      NXD_TEST_REFUSED(nxd_store_set(store, "k", "v", 1), status, part);
      NXD_TEST_REFUSED(nxd_store_add(store, "k", 1, &sum), status, part);
    }
    NXD_TEST_REFUSED(nxd_store_get(store, "k", 0, buf, sizeof buf, &size), status, part);
    assert_int_equal(nxd_test_failures(), before);
  };
  check(NXD_ERROR_USER, "the callback threw: the database is away");
  how = How::kThrowsNumber;
  check(NXD_ERROR_USER, "the callback threw what is no std::exception");
  how = How::kAnswersSeven;
  check(7, "callback");
  how = How::kAnswersMinusHundred;
  check(-100, "callback");
  how = How::kEndlessValue;
  check(NXD_ERROR_USER, "expected a size of at most");
  nxd_store_destroy(store);
}

nxd_status_t interrupt(void* how) { return misbehave(how); }

void callback_of_an_interrupt(void**) {
  const std::pair<How, nxd_status_t> table[] = {{How::kAnswersSeven, 7},
                                                {How::kAnswersMinusHundred, -100},
                                                {How::kThrows, NXD_ERROR_USER},
                                                {How::kThrowsNumber, NXD_ERROR_USER}};
  for (auto [how, status] : table) {
    nxd_store store{std::make_shared<nxd::LocalStore>()};
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.rendezvous = NXD_RENDEZVOUS_STORE;
    options.size = 2;
    options.store = &store;
    options.timeout_ms = 60000;
    options.interrupt = interrupt;
    options.interrupt_data = &how;
    nxd_context_t* ctx = nullptr;
    assert_int_equal(nxd_context_create(&options, &ctx), status);
    assert_null(ctx);
  }
}

// --- Cancellation --------------------------------------------------------------------------------

struct Joiner {
  nxd_store store{std::make_shared<nxd::LocalStore>()};
  std::atomic<bool> returned{false};
};

nxd_status_t once_asked(void* data) {
  static_cast<std::atomic<bool>*>(data)->store(true);
  return NXD_OK;
}

std::atomic<bool> waits{false};

void* join_alone(void* data) {
  auto& joiner = *static_cast<Joiner*>(data);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.size = 2;
  options.store = &joiner.store;
  options.timeout_ms = 1500;
  options.interrupt = once_asked;
  options.interrupt_data = &waits;
  nxd_context_t* ctx = nullptr;
  NXD_TEST_REFUSED(nxd_context_create(&options, &ctx), NXD_ERROR_TIMEOUT, "did not come");
  joiner.returned = true;
  for (;;) pause();  // a cancellation point
}

void a_cancelled_thread_ends_its_call_first(void**) {
  Joiner joiner;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, join_alone, &joiner), 0);
  while (!waits) usleep(1000);
  assert_int_equal(pthread_cancel(thread), 0);
  void* result = nullptr;
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_true(result == PTHREAD_CANCELED);
  assert_true(joiner.returned);
  assert_int_equal(nxd_test_failures(), 0);
}

// The thread ends without a cancellation point of its own: its team is joined behind it.
std::atomic<int> cancelled{0};  // 1: it is to be, 2: it is

void* compute_cancelled(void*) {
  omp_set_num_threads(2);
  std::vector<float> x(1 << 20);
  cancelled = 1;
  while (cancelled != 2) sched_yield();
  nxd::kernels::scale(NXD_DTYPE_F32, 1 << 20, x.data(), 1.0, x.data());
  return &cancelled;
}

void a_cancelled_thread_ends_its_team(void**) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, compute_cancelled, nullptr), 0);
  while (cancelled != 1) usleep(1000);
  assert_int_equal(pthread_cancel(thread), 0);
  cancelled = 2;
  void* result = nullptr;
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, &cancelled);
}

// As calls of two fibers do.
void holds_end_in_any_order(void**) {
  int before = -1;
  auto first = std::make_unique<nxd::Uncancelled>();
  auto second = std::make_unique<nxd::Uncancelled>();
  first.reset();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  assert_int_equal(before, PTHREAD_CANCEL_DISABLE);
  second.reset();
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
  assert_int_equal(before, PTHREAD_CANCEL_ENABLE);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_success_is_no_error),
      cmocka_unit_test(a_thread_that_cannot_start_says_why),
      cmocka_unit_test(callbacks_of_a_store),
      cmocka_unit_test(callback_of_an_interrupt),
      cmocka_unit_test(a_cancelled_thread_ends_its_call_first),
      cmocka_unit_test(a_cancelled_thread_ends_its_team),
      cmocka_unit_test(holds_end_in_any_order),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
