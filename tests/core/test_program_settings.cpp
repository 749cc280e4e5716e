// Settings that the program has made for its threads or for all of itself change no result: traps,
// rounding and flushing of floating-point arithmetic, and the locale of C++. Callbacks find them as
// they were, and so does the program after a call.
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <locale>
#include <string>

#include "support/ranks.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

#if defined(__x86_64__)

constexpr unsigned kTraps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;

void trap() { ::feenableexcept(kTraps); }
bool traps() { return ::fegetexcept() == static_cast<int>(kTraps); }

// Each rank's thread has another environment.
void set_unlike(int rank) {
  if (rank == 0) std::fesetround(FE_UPWARD);
  if (rank == 1) _mm_setcsr(_mm_getcsr() | 0x8040U);  // to zero: subnormal results and operands
  if (rank == 2) trap();
}

bool is_unlike(int rank) {
  if (rank == 0) return std::fegetround() == FE_UPWARD;
  if (rank == 1) return (_mm_getcsr() & 0x8040U) == 0x8040U;
  return rank != 2 || traps();
}

void sum(nxd_group_t* group, float value, float expected) {
  float receive = 0;
  NXD_TEST_OK(nxd_all_reduce(group, &value, &receive, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(std::memcmp(&receive, &expected, sizeof receive) == 0);
  receive = 0;
  nxd_work_t* work = nullptr;
  NXD_TEST_OK(
      nxd_all_reduce_async(group, &value, &receive, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  NXD_TEST_OK(nxd_work_wait(work, -1));
  nxd_work_destroy(work);
  NXD_TEST_CHECK(std::memcmp(&receive, &expected, sizeof receive) == 0);
}

void sums(nxd_context_t* ctx, int rank, int size, void* /*user_data*/) {
  nxd_group_t* group = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &group));
  const float tiny = std::numeric_limits<float>::denorm_min(),
              large = std::numeric_limits<float>::max();
  const float given = 3 * tiny, expected = 3 * static_cast<float>(size) * tiny;
  set_unlike(rank);
  const int flags = std::fetestexcept(FE_ALL_EXCEPT);
  sum(group, given, expected);
  sum(group, rank == 0 ? 1.0F : 1e-8F, 1.0F);  // rounded up it were more
  sum(group, large, std::numeric_limits<float>::infinity());
  NXD_TEST_CHECK(is_unlike(rank));
  NXD_TEST_CHECK(rank == 3 || std::fetestexcept(FE_ALL_EXCEPT) == flags);
  std::fesetenv(FE_DFL_ENV);
}

void sums_are_the_same_on_all_ranks(void** /*state*/) {
  nxd_test_run_ranks(4, 0, sums, nullptr);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.transport = NXD_TRANSPORT_GLOO;
  nxd_test_run_ranks_with(&options, 4, 0, sums, nullptr);
}

void bad_numbers_are_rejected_under_traps(void** /*state*/) {
  nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  schedule.final_factor = std::numeric_limits<double>::quiet_NaN();
  double factor = 0;
  trap();
  const nxd_status_t status = nxd_lr_schedule_get_factor(&schedule, 0, &factor);
  const bool is_as_before = traps();
  std::fesetenv(FE_DFL_ENV);
  assert_int_equal(status, NXD_ERROR_INVALID_ARGUMENT);
  assert_true(is_as_before);
}

struct Seen {
  int calls = 0, rounded_up = 0, destroyed_rounding = -1;
};

// A call of the callback's own is like any other, and leaves the callback's rounding alone.
nxd_status_t look(const nxd_update_t* /*update*/, void* user_data) {
  auto& seen = *static_cast<Seen*>(user_data);
  nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  double factor = 0;
  ++seen.calls;
  if (std::fegetround() != FE_UPWARD) return NXD_OK;
  if (nxd_lr_schedule_get_factor(&schedule, 0, &factor) != NXD_OK) return NXD_ERROR_USER;
  if (std::fegetround() == FE_UPWARD) ++seen.rounded_up;
  return NXD_OK;
}

void look_at_the_end(void* user_data) {
  static_cast<Seen*>(user_data)->destroyed_rounding = std::fegetround();
}

void update(nxd_context_t* ctx, int /*rank*/, int /*size*/, void* /*user_data*/) {
  float value = 1, grad = 1;
  int64_t one = 1;
  DLTensor param{&value, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &one, nullptr, 0};
  DLTensor gradient = param;
  gradient.data = &grad;
  DLTensor* params[] = {&param};
  DLTensor* grads[] = {&gradient};
  nxd_ddp_t* ddp = nullptr;
  NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, nullptr, params, grads, 1, nullptr, &ddp));
  Seen seen;
  nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
  options.update = look;
  options.user_data = &seen;
  options.destroy = look_at_the_end;
  nxd_optimizer_t* optimizer = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_custom_ddp(ddp, &options, &optimizer));
  std::fesetround(FE_UPWARD);
  NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
  NXD_TEST_CHECK(std::fegetround() == FE_UPWARD);
  nxd_optimizer_destroy(optimizer);
  nxd_ddp_destroy(ddp);
  std::fesetround(FE_TONEAREST);
  NXD_TEST_CHECK(seen.calls > 0 && seen.rounded_up == seen.calls);
  NXD_TEST_CHECK(seen.destroyed_rounding == FE_UPWARD);
}

void callbacks_have_the_callers(void** /*state*/) { nxd_test_run_ranks(1, 0, update, nullptr); }

#endif

// It groups digits as the locales of many languages do; a machine need not have any of these.
struct Grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

int join(int rank, const std::string& path) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  nxd_store_t* store = nullptr;
  nxd_context_t* ctx = nullptr;
  nxd_group_t* group = nullptr;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = 2;
  options.timeout_ms = 20000;
  bool good = NXD_TEST_OK(nxd_store_create_file(path.c_str(), &store)) != 0;
  for (const nxd_transport_t transport : {NXD_TRANSPORT_SHARED_MEMORY, NXD_TRANSPORT_GLOO}) {
    options.transport = transport;
    options.store = store;
    float value = 1;
    good = good && NXD_TEST_OK(nxd_context_create(&options, &ctx)) &&
           NXD_TEST_OK(nxd_context_get_world_group(ctx, &group)) &&
           NXD_TEST_OK(nxd_all_reduce(group, &value, &value, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM)) &&
           NXD_TEST_CHECK(value == 2) && NXD_TEST_OK(nxd_context_finalize(ctx));
    nxd_context_destroy(ctx);
    ctx = nullptr;
    nxd_store_destroy(store);
    store = nullptr;
    if (transport == NXD_TRANSPORT_SHARED_MEMORY) {
      good = good && NXD_TEST_OK(nxd_store_create_file((path + "2").c_str(), &store));
    }
  }
  return good ? 0 : 1;
}

// Ports, numbers of processes and the like are written by one rank and read by another.
void a_rank_may_have_a_locale_of_its_own(void** /*state*/) {
  const nxd_test::TempDir directory;
  const std::string path = directory.path() + "/store";
  const pid_t child = ::fork();
  assert_true(child >= 0);
  if (child == 0) ::_exit(join(1, path));
  const std::locale before = std::locale::global(std::locale(std::locale(), new Grouping));
  const int failed = join(0, path);
  int status = 0;
  const pid_t ended = ::waitpid(child, &status, 0);
  nxd_log_set_level(12345);
  const std::string message = nxd_last_error();
  std::locale::global(before);
  assert_int_equal(ended, child);
  assert_int_equal(status, 0);
  assert_int_equal(failed, 0);
  assert_non_null(std::strstr(message.c_str(), "12345"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
#if defined(__x86_64__)
    cmocka_unit_test(sums_are_the_same_on_all_ranks),
    cmocka_unit_test(bad_numbers_are_rejected_under_traps),
    cmocka_unit_test(callbacks_have_the_callers),
#endif
    cmocka_unit_test(a_rank_may_have_a_locale_of_its_own),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
