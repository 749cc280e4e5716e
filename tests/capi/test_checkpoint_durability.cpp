// A checkpoint whose name cannot be brought to the disk: the error says that it is complete, it can
// be read, nothing of it is removed, and publishing it again brings the name there. One whose files
// cannot be brought there has no name, until it is published again.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "nxd.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

std::string failing_path;  // set before ranks begin
std::atomic<int> failures_left{0};

}  // namespace

// It stands before the system's in this process.
extern "C" int fsync(int fd) {
  static auto* system = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "fsync"));
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  static_cast<void>(::readlink(link.c_str(), path, sizeof path - 1) < 0);
  if (failing_path != path || failures_left.fetch_sub(1) <= 0) return system(fd);
  errno = EIO;
  return -1;
}

namespace {

constexpr const char* kMessage = "step-000000000003 is complete and can be loaded, but may be lost";

nxd_checkpoint_t* begin(nxd_context_t* ctx, int rank, const std::string& root) {
  nxd_checkpoint_t* checkpoint = nullptr;
  if (!NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 3, &checkpoint))) return nullptr;
  char path[4096] = "";
  size_t needed = 0;
  const std::string name = "of-" + std::to_string(rank);
  NXD_TEST_OK(nxd_checkpoint_get_path(checkpoint, name.c_str(), path, sizeof path, &needed));
  std::ofstream(path) << "content";
  NXD_TEST_OK(nxd_checkpoint_set_value(checkpoint, "key", "value"));
  return checkpoint;
}

void check_there(nxd_context_t* ctx, const std::string& root) {
  nxd_checkpoint_t* opened = nullptr;
  NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &opened));
  char value[16] = "";
  size_t needed = 0;
  NXD_TEST_CHECK(opened != nullptr);
  NXD_TEST_OK(nxd_checkpoint_get_value(opened, "key", value, sizeof value, &needed));
  NXD_TEST_CHECK(std::string(value) == "value");
  NXD_TEST_OK(nxd_checkpoint_restore_random_state(opened));
  nxd_checkpoint_destroy(opened);
}

void published(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string root = *static_cast<std::string*>(user_data);
  for (const bool tries_again : {false, true}) {
    nxd_checkpoint_t* checkpoint = begin(ctx, rank, root);
    if (!checkpoint) return;
    if (rank == 0) failures_left = 1;
    NXD_TEST_REFUSED(nxd_checkpoint_publish(checkpoint, 0), NXD_ERROR_IO, kMessage);
    check_there(ctx, root);
    NXD_TEST_REFUSED(nxd_checkpoint_set_value(checkpoint, "key", "other"), NXD_ERROR_INVALID_STATE,
                     "before it is published");
    if (tries_again) {
      NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, 1));
      NXD_TEST_REFUSED(nxd_checkpoint_publish(checkpoint, 0), NXD_ERROR_INVALID_STATE,
                       "published already");
    }
    nxd_checkpoint_destroy(checkpoint);
    check_there(ctx, root);
  }
}

std::atomic<int> warnings{0};

void count_warnings(nxd_log_level_t, const char* message, void*) {
  warnings += std::string(message).find("step 3 is not published: ") != std::string::npos;
}

// Each failure that the program has not waited for is named in the log by the end, and no other.
void not_waited_for(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string root = *static_cast<std::string*>(user_data);
  const auto publish = [&](nxd_checkpoint_t* checkpoint, bool waits) {
    if (rank == 0) failures_left = 1;
    NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint, 0));
    if (waits) NXD_TEST_REFUSED(nxd_checkpoint_wait(checkpoint, -1), NXD_ERROR_IO, kMessage);
  };
  for (const std::vector<bool>& waits : {std::vector{false}, {true}, {true, false}}) {
    nxd_checkpoint_t* checkpoint = begin(ctx, rank, root);
    if (!checkpoint) return;
    for (const bool one_waits : waits) publish(checkpoint, one_waits);
    nxd_checkpoint_destroy(checkpoint);
    check_there(ctx, root);
    NXD_TEST_CHECK(warnings == (waits.size() == 1 ? 2 : 4));
  }
}

void published_in_the_background(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string root = *static_cast<std::string*>(user_data);
  nxd_checkpoint_t* checkpoint = begin(ctx, rank, root);
  if (!checkpoint) return;
  if (rank == 0) failures_left = 1;
  NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint, 0));
  NXD_TEST_REFUSED(nxd_checkpoint_wait(checkpoint, -1), NXD_ERROR_IO, kMessage);
  NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint, 0));
  NXD_TEST_OK(nxd_checkpoint_wait(checkpoint, -1));
  nxd_checkpoint_destroy(checkpoint);
  check_there(ctx, root);
}

// Its own directory, after the manifest is there, or a file that the program has written.
void not_published(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string root = *static_cast<std::string*>(user_data);
  nxd_checkpoint_t* checkpoint = begin(ctx, rank, root);
  if (!checkpoint) return;
  if (rank == 0) failures_left = 1;
  NXD_TEST_REFUSED(nxd_checkpoint_publish(checkpoint, 0), NXD_ERROR_IO, "cannot synchronise");
  nxd_checkpoint_t* none = nullptr;
  NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &none));
  NXD_TEST_CHECK(none == nullptr);
  NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, 0));
  nxd_checkpoint_destroy(checkpoint);
  check_there(ctx, root);
}

void run(nxd_test_rank_fn body, const std::string& below_root = "") {
  const nxd_test::TempDir directory;
  std::string root = directory.path() + "/run";
  failing_path = root + below_root;
  failures_left = 0;
  nxd_test_run_ranks(2, 0, body, &root);
}

void test_published(void**) { run(published); }
void test_published_in_the_background(void**) { run(published_in_the_background); }

void test_not_waited_for(void**) {
  warnings = 0;
  assert_int_equal(nxd_log_set_callback(count_warnings, nullptr, nullptr), NXD_OK);
  run(not_waited_for);
  assert_int_equal(nxd_log_set_callback(nullptr, nullptr, nullptr), NXD_OK);
}

void test_not_published(void**) {
  run(not_published, "/.step-000000000003.partial");
  for (const char* file : {"of-0", "of-1"}) {
    run(not_published, std::string("/.step-000000000003.partial/") + file);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_published),
      cmocka_unit_test(test_published_in_the_background),
      cmocka_unit_test(test_not_waited_for),
      cmocka_unit_test(test_not_published),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
