// Directories of checkpoints on a file system that fails, or that lacks calls: nothing older takes
// the place of what was saved last, neither when it is published nor when it is looked for.
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/file.h"
#include "support/ranks.h"
#include "support/rejection.h"
#include "support/temp_dir.h"
#include "support/working_directory.h"

#include "support/check.h"

namespace {

enum class Failing {
  kNothing,
  kRemoval,
  kRemovedMeanwhile,
  kSynchronisation,
  kSynchronisationOfDirectories,
  kReading,
  kDirectoryCalls,
  kExchange,
  kExchangeAndPartial,
  kMark
};
std::atomic<Failing> failing = Failing::kNothing;
std::vector<ino_t> synchronised;  // directories

bool fails(Failing what) {
  if (failing != what) return false;
  errno = EIO;
  return true;
}

// As overlayfs has it for directories of a lower layer, here for those that have been published.
bool crosses_layers(const char* path) {
  if (failing != Failing::kDirectoryCalls || !strstr(path, "/step-")) return false;
  errno = EXDEV;
  return true;
}

bool is_directory(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

// As of a file system that synchronises files alone.
bool is_directory_without_call(int fd) {
  if (failing != Failing::kDirectoryCalls || !is_directory(fd)) return false;
  errno = EINVAL;
  return true;
}

// As NFS has it.
bool lacks_exchange() {
  if (failing != Failing::kExchange && failing != Failing::kExchangeAndPartial) return false;
  errno = EINVAL;
  return true;
}

bool is_partial(const char* path) {
  return strstr(path, ".partial") && fails(Failing::kExchangeAndPartial);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// They stand before the system's in this process.
extern "C" {

int unlinkat(int directory, const char* path, int flags) noexcept {
  static auto* system = next<int(int, const char*, int)>("unlinkat");
  const bool is_another = failing == Failing::kRemovedMeanwhile;
  if (fails(Failing::kRemoval)) return -1;
  const int result = system(directory, path, flags);
  if (is_another) errno = ENOENT;
  return is_another ? -1 : result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* system = next<int(const char*, mode_t)>("mkdir");
  return strstr(path, "/.made-by-") && fails(Failing::kMark) ? -1 : system(path, mode);
}

int fsync(int fd) {
  static auto* system = next<int(int)>("fsync");
  struct stat status {};
  const bool is_of_directory = ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  if (is_of_directory) synchronised.push_back(status.st_ino);
  const bool is_lost = fails(Failing::kSynchronisation) || is_directory_without_call(fd) ||
                       (is_of_directory && fails(Failing::kSynchronisationOfDirectories));
  return is_lost ? -1 : system(fd);
}

int rename(const char* from, const char* to) noexcept {
  static auto* system = next<int(const char*, const char*)>("rename");
  return crosses_layers(from) || is_partial(from) ? -1 : system(from, to);
}

int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  static auto* system = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return crosses_layers(to) || lacks_exchange() ? -1 : system(from_at, from, to_at, to, flags);
}

ssize_t pread(int fd, void* out, size_t size, off_t offset) {
  static auto* system = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return fails(Failing::kReading) ? -1 : system(fd, out, size, offset);
}
}

namespace {

namespace fs = std::filesystem;
using nxd::CheckpointDirectory;

constexpr const char* kFile = "/weights";

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes the partial directory of a step.
std::unique_ptr<nxd::DirectoryLock> write(const CheckpointDirectory& directory, int64_t step,
                                          const std::string& content) {
  auto lock = directory.begin(step);
  const std::string path = directory.partial_path(step);
  std::ofstream(path + kFile) << content;
  nxd::CheckpointManifest manifest;
  manifest.step = step;
  manifest.num_ranks = 1;
  manifest.files.push_back(nxd::describe_file(path, kFile + 1));
  std::ofstream(path + "/" + nxd::kManifestName) << nxd::manifest_text(manifest);
  return lock;
}

void save(const CheckpointDirectory& directory, int64_t step, const std::string& content) {
  const auto lock = write(directory, step, content);
  directory.place(step);
  directory.make_durable(step);
}

// Entries of a directory of checkpoints, its lock apart.
int entries_in(const CheckpointDirectory& directory) {
  int entries = 0;
  for (const auto& entry : fs::directory_iterator(directory.root())) {
    entries += entry.path().filename() != ".lock";
  }
  return entries;
}

template <class Function>
nxd_status_t status_of(Failing what, Function&& function) {
  nxd_status_t status = NXD_OK;
  failing = what;
  try {
    std::forward<Function>(function)();
  } catch (const nxd::Error& error) {
    status = error.status();
  }
  failing = Failing::kNothing;
  return status;
}

// The new one is there although the old one cannot be removed, which the next one does.
void an_old_one_that_stays(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 5, "old");
  {
    const auto lock = write(directory, 5, "new");
    directory.place(5);
    assert_int_equal(status_of(Failing::kRemoval, [&] { directory.make_durable(5); }), NXD_OK);
  }
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "new");
  assert_false(fs::exists(directory.partial_path(5)));
  save(directory, 6, "next");
  assert_true(directory.steps() == (std::vector<int64_t>{6, 5}));
  assert_int_equal(entries_in(directory), 2);
}

// The name goes before any of the content, and another host may take away what is to be removed.
void an_old_one_loses_its_name_first(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  for (const int64_t step : {1, 2, 3}) save(directory, step, "some");
  assert_int_equal(status_of(Failing::kRemoval, [&] { directory.prune(3, 2); }), NXD_OK);
  assert_true(directory.steps() == (std::vector<int64_t>{3, 2}));
  assert_int_equal(entries_in(directory), 3);
  std::unique_ptr<nxd::DirectoryLock> lock;
  assert_int_equal(status_of(Failing::kRemovedMeanwhile, [&] { lock = directory.begin(4); }),
                   NXD_OK);
  assert_int_equal(entries_in(directory), 3);
}

// One that nobody can remove keeps neither other steps from being removed nor new ones from being
// saved, unless its place is that of the new one.
void one_that_cannot_be_removed(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  for (const int64_t step : {1, 2, 3}) save(directory, step, "some");
  assert_int_equal(status_of(Failing::kRemoval, [&] { directory.prune(3, 1); }), NXD_OK);
  assert_true(directory.steps() == std::vector<int64_t>{3});
  assert_int_equal(status_of(Failing::kRemoval, [&] { save(directory, 4, "new"); }), NXD_OK);
  assert_true(directory.newest() == 4);
  assert_int_equal(entries_in(directory), 4);
  fs::create_directories(directory.partial_path(5) + "/in");
  failing = Failing::kRemoval;
  nxd_test::rejection(NXD_ERROR_IO, "step-000000000005.partial: cannot remove it",
                      [&] { static_cast<void>(directory.begin(5)); });
  failing = Failing::kNothing;
  save(directory, 5, "newer");
  assert_int_equal(entries_in(directory), 3);
}

// Such a file system loses nothing but what it would lose without a checkpoint, too.
void a_file_system_without_calls_for_directories(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  for (const int64_t step : {4, 5}) save(directory, step, "old");
  assert_int_equal(status_of(Failing::kDirectoryCalls,
                             [&] {
                               save(directory, 5, "new");
                               directory.prune(5, 1);
                               nxd::AtomicFile file(dir.path() + "/alone");
                               file.commit();
                             }),
                   NXD_OK);
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "new");
  assert_true(directory.steps() == std::vector<int64_t>{5});
  assert_true(fs::exists(dir.path() + "/alone"));
  assert_false(fs::exists(directory.partial_path(5)));
}

// The older one keeps its name where the new one cannot have it.
void a_file_system_without_exchange(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 5, "old");
  {
    const auto lock = write(directory, 5, "new");
    assert_int_equal(status_of(Failing::kExchangeAndPartial, [&] { directory.place(5); }),
                     NXD_ERROR_IO);
    assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "old");
    assert_string_equal(read(directory.partial_path(5) + kFile).c_str(), "new");
    assert_int_equal(status_of(Failing::kExchange, [&] { directory.place(5); }), NXD_OK);
    assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "new");
    directory.make_durable(5);
  }
  assert_int_equal(entries_in(directory), 1);
}

// A caller that tries again after a failure never publishes what was there before.
void a_second_try_publishes_nothing_older(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 5, "old");
  const auto lock = write(directory, 5, "new");
  // The partial directory itself cannot be brought to the disk: nothing has changed.
  assert_int_equal(status_of(Failing::kSynchronisation, [&] { directory.place(5); }), NXD_ERROR_IO);
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "old");
  assert_string_equal(read(directory.partial_path(5) + kFile).c_str(), "new");
  directory.place(5);
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "new");
  assert_false(fs::exists(directory.partial_path(5)));
}

// Where the name cannot be brought to the disk the checkpoint is there, and a second try does the
// rest.
void a_name_that_is_not_on_the_disk(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 5, "old");
  const auto lock = write(directory, 5, "new");
  directory.place(5);
  std::string message;
  assert_int_equal(status_of(Failing::kSynchronisation,
                             [&] {
                               try {
                                 directory.make_durable(5);
                               } catch (const nxd::Error& error) {
                                 message = error.what();
                                 throw;
                               }
                             }),
                   NXD_ERROR_IO);
  assert_non_null(strstr(message.c_str(), "step-000000000005 is complete and can be loaded"));
  assert_true(directory.newest() == 5);
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "new");
  directory.make_durable(5);
  assert_int_equal(entries_in(directory), 1);
}

// A file has its name once its content is on the disk, and says where that name may be lost.
void a_file_that_is_not_on_the_disk(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/file";
  std::ofstream(path) << "old";
  const auto replace = [&path] {
    nxd::AtomicFile file(path);
    file.write("new", 3);
    file.commit();
  };
  assert_int_equal(status_of(Failing::kSynchronisation, replace), NXD_ERROR_IO);
  assert_string_equal(read(path).c_str(), "old");
  failing = Failing::kSynchronisationOfDirectories;
  nxd_test::rejection(NXD_ERROR_IO, "/file is complete and can be read, but may be lost", replace);
  failing = Failing::kNothing;
  assert_string_equal(read(path).c_str(), "new");
}

// The old one cannot leave, for something has its place: the new one is not published, and a second
// try publishes no older one.
void an_old_one_that_cannot_leave(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 5, "old");
  const auto lock = write(directory, 5, "new");
  const std::string taken = directory.root() + "/.step-000000000005.removed";
  fs::create_directories(taken + "/by");
  assert_int_equal(status_of(Failing::kNothing, [&] { directory.place(5); }), NXD_ERROR_IO);
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "old");
  assert_string_equal(read(directory.partial_path(5) + kFile).c_str(), "new");
  fs::remove_all(taken);
  directory.place(5);
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "new");
}

// A job that ended while it exchanged two on a file system without a call for it.
void one_that_was_put_aside(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 5, "old");
  const std::string aside = directory.published_path(5) + std::string(nxd::kAside);
  save(directory, 4, "older");
  fs::rename(directory.published_path(5), aside);
  assert_true(directory.steps() == (std::vector<int64_t>{5, 4}));
  assert_true(directory.newest() == 5);
  assert_string_equal(read(directory.path_of(5) + kFile).c_str(), "old");
  static_cast<void>(directory.begin(6));
  assert_true(directory.newest() == 5);
  assert_false(fs::exists(aside));
  // Where the new one had come to its place the old one is gone.
  fs::create_directories(aside);
  assert_true(directory.steps() == (std::vector<int64_t>{5, 4}));
  assert_true(directory.newest() == 5);
  static_cast<void>(write(directory, 5, "new"));
  assert_false(fs::exists(aside));
  assert_string_equal(read(directory.published_path(5) + kFile).c_str(), "old");
}

// The names of directories that are made for it outlive the machine's crash.
void new_directories(void**) {
  const nxd_test::TempDir dir;
  synchronised.clear();
  const auto lock = CheckpointDirectory(dir.path() + "/a/b").begin(1);
  const auto has = [](const std::string& path) {
    struct stat status {};
    assert_int_equal(::stat(path.c_str(), &status), 0);
    return std::count(synchronised.begin(), synchronised.end(), status.st_ino) == 1;
  };
  assert_true(has(dir.path()) && has(dir.path() + "/a"));
}

// Whatever has the name of the step is replaced: a directory without a manifest, a file, a link
// that leads nowhere.
void foreign_entries_are_replaced(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  fs::create_directories(directory.published_path(1));
  std::ofstream(directory.published_path(2)) << "a file";
  fs::create_symlink("nowhere", directory.published_path(3));
  assert_false(directory.newest().has_value());
  for (const int64_t step : {1, 2, 3}) {
    save(directory, step, "new");
    assert_true(directory.newest() == step);
    assert_string_equal(read(directory.published_path(step) + kFile).c_str(), "new");
    directory.prune(step, 1);
    assert_true(directory.steps().back() == step);
  }
}

// Nobody waits for the other end of a FIFO.
void a_lock_that_is_no_file(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  fs::create_directories(directory.root());
  assert_int_equal(::mkfifo((directory.root() + "/.lock").c_str(), 0600), 0);
  ::alarm(60);
  nxd_test::rejection(NXD_ERROR_IO, "/.lock: expected a regular file, got a FIFO",
                      [&] { static_cast<void>(directory.begin(1)); });
  ::alarm(0);
}

void let_all_write(const std::string& path) { assert_int_equal(::chmod(path.c_str(), 0777), 0); }

// Calls as a user whom modes of files bind, as they do not bind root.
void as_another_user(const std::function<void()>& call) {
  const uid_t user = ::geteuid();
  constexpr uid_t kNobody = 65534;
  if (user == 0) assert_int_equal(::seteuid(kNobody), 0);
  call();
  if (user == 0) assert_int_equal(::seteuid(user), 0);
}

// Several users may save to a directory that they share, if not at the same time.
void a_lock_of_another_user(void**) {
  const nxd_test::TempDir dir;
  const std::string root = dir.path() + "/run";
  fs::create_directories(root);
  for (const std::string& path : {dir.path(), root}) let_all_write(path);
  std::ofstream(root + "/.lock").close();
  assert_int_equal(::chmod((root + "/.lock").c_str(), 0444), 0);
  as_another_user([&] {
    {
      const nxd::DirectoryLock first(root);
      nxd_test::rejection(NXD_ERROR_INVALID_STATE, "another checkpoint is being written here",
                          [&] { const nxd::DirectoryLock second(root); });
    }
    const nxd::DirectoryLock again(root);
  });
}

// The step of another user, who lets nobody read it, stays, and counts for none.
void a_step_of_another_user(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  for (const int64_t step : {1, 2, 3, 4}) save(directory, step, "some");
  for (const std::string& path : {dir.path(), directory.root()}) let_all_write(path);
  for (const int64_t step : {1, 2, 4}) let_all_write(directory.published_path(step));
  assert_int_equal(::chmod(directory.published_path(3).c_str(), 0), 0);
  as_another_user([&] { directory.prune(4, 2); });
  assert_true(directory.steps() == (std::vector<int64_t>{4, 3, 2}));
  assert_int_equal(entries_in(directory), 3);
  let_all_write(directory.published_path(3));
}

// Remains of jobs are removed, and an entry that only looks like one is somebody's own.
void only_leftovers_are_removed(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  const char* const left[] = {".step-000000000007.partial", ".step-000000000008.removed",
                              "step-000000000001.aside"};
  const char* const own[] = {"step-notes.aside",         ".step-7.partial",
                             ".step-.removed",           "step-000000000007.bak",
                             "step-9223372036854775808", ".step-0000000000071.partial"};
  for (const char* name : left) fs::create_directories(directory.root() + "/" + name + "/in");
  for (const char* name : own) fs::create_directories(directory.root() + "/" + name + "/in");
  fs::create_directories(directory.published_path(1));
  save(directory, 1, "new");
  assert_true(directory.steps() == std::vector<int64_t>{1});
  for (const char* name : left) assert_false(fs::exists(directory.root() + "/" + name));
  for (const char* name : own) assert_true(fs::exists(directory.root() + "/" + name + "/in"));
}

void one_that_cannot_be_read_is_not_passed_over(void**) {
  const nxd_test::TempDir dir;
  const CheckpointDirectory directory(dir.path() + "/run");
  save(directory, 1, "first");
  save(directory, 2, "second");
  std::optional<int64_t> found;
  assert_int_equal(status_of(Failing::kReading, [&] { found = directory.newest(); }), NXD_ERROR_IO);
  assert_int_equal(directory.newest().value_or(-1), 2);
  fs::remove(directory.published_path(2) + "/" + nxd::kManifestName);
  assert_int_equal(directory.newest().value_or(-1), 1);
}

// Only a directory that is not there is one without checkpoints.
void a_directory_that_cannot_be_looked_at_is_not_empty(void**) {
  const nxd_test::TempDir dir;
  assert_false(CheckpointDirectory(dir.path() + "/run").newest().has_value());
  std::ofstream(dir.path() + "/file") << "no directory";
  fs::create_symlink(dir.path() + "/circle", dir.path() + "/circle");
  for (const char* name : {"/file/run", "/circle/run", "/circle"}) {
    const std::string root = dir.path() + name;
    nxd_test::rejection(NXD_ERROR_IO, (root + ": cannot look at it").c_str(),
                        [&] { CheckpointDirectory(root).newest(); });
  }
}

// A file that somebody replaces by a link leads to no other, and by a FIFO to no wait.
void what_is_no_file_is_not_synchronised(void**) {
  const nxd_test::TempDir dir;
  const std::string file = dir.path() + "/file", link = dir.path() + "/link";
  std::ofstream(file) << "content";
  nxd::synchronise(file);
  fs::create_symlink(file, link);
  nxd_test::rejection(NXD_ERROR_IO, "link: ", [&] { nxd::synchronise(link); });
  const std::string fifo = dir.path() + "/fifo";
  assert_int_equal(::mkfifo(fifo.c_str(), 0600), 0);
  status_of(Failing::kNothing, [&] { nxd::synchronise(fifo); });
}

// The first rank makes another directory in that of the step, which the others look for.
void a_creation_that_fails(void**) {
  const nxd_test::TempDir dir;
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void* user_data) {
        const std::string root = static_cast<const nxd_test::TempDir*>(user_data)->path() + "/run";
        nxd_checkpoint_t* made = nullptr;
        const auto create = [&] { return nxd_checkpoint_create(ctx, root.c_str(), 1, &made); };
        failing = Failing::kMark;
        NXD_TEST_REFUSED(create(), NXD_ERROR_IO, ".made-by-");
        failing = Failing::kNothing;
        NXD_TEST_CHECK(!fs::exists(CheckpointDirectory(root).partial_path(1)));
        NXD_TEST_OK(create());
        nxd_checkpoint_destroy(made);
      },
      const_cast<nxd_test::TempDir*>(&dir));
}

// A relative path leads from where the program was when it named it.
void a_program_that_goes_elsewhere(void**) {
  const nxd_test::TempDir dir;
  fs::create_directory(dir.path() + "/elsewhere");
  nxd_test::WorkingDirectory here(dir.path());
  const CheckpointDirectory directory("run");
  const auto lock = write(directory, 5, "new");
  here.change("elsewhere");
  directory.place(5);
  directory.make_durable(5);
  assert_true(directory.newest() == 5);
  assert_string_equal(read(dir.path() + "/run/step-000000000005" + kFile).c_str(), "new");
  assert_true(fs::is_empty(dir.path() + "/elsewhere"));
}

void a_working_directory_that_is_gone(void**) {
  const nxd_test::TempDir dir;
  const std::string gone = dir.path() + "/gone";
  fs::create_directory(gone);
  const nxd_test::WorkingDirectory here(gone);
  fs::remove(gone);
  nxd_test::rejection(NXD_ERROR_IO, "run: cannot find the working directory",
                      [&] { const CheckpointDirectory directory("run"); });
  save(CheckpointDirectory(dir.path() + "/run"), 1, "new");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_old_one_that_stays),
      cmocka_unit_test(an_old_one_loses_its_name_first),
      cmocka_unit_test(one_that_cannot_be_removed),
      cmocka_unit_test(a_file_system_without_calls_for_directories),
      cmocka_unit_test(a_file_system_without_exchange),
      cmocka_unit_test(a_second_try_publishes_nothing_older),
      cmocka_unit_test(a_name_that_is_not_on_the_disk),
      cmocka_unit_test(an_old_one_that_cannot_leave),
      cmocka_unit_test(one_that_was_put_aside),
      cmocka_unit_test(new_directories),
      cmocka_unit_test(a_file_that_is_not_on_the_disk),
      cmocka_unit_test(foreign_entries_are_replaced),
      cmocka_unit_test(a_lock_that_is_no_file),
      cmocka_unit_test(a_lock_of_another_user),
      cmocka_unit_test(a_step_of_another_user),
      cmocka_unit_test(only_leftovers_are_removed),
      cmocka_unit_test(one_that_cannot_be_read_is_not_passed_over),
      cmocka_unit_test(a_directory_that_cannot_be_looked_at_is_not_empty),
      cmocka_unit_test(what_is_no_file_is_not_synchronised),
      cmocka_unit_test(a_creation_that_fails),
      cmocka_unit_test(a_program_that_goes_elsewhere),
      cmocka_unit_test(a_working_directory_that_is_gone),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
