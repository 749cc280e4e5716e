// Files that are written whole or not at all, whatever becomes of their writer.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "core/checkpoint/file.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

bool must_be_named = false;

}  // namespace

// It stands before the system's in this process. Some file systems have no files without a name.
extern "C" int open(const char* path, int flags, ...) {
  using Open = int(const char*, int, ...);
  static auto* system = reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, "open"));
  const bool is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  if (must_be_named && is_unnamed) {
    errno = EOPNOTSUPP;
    return -1;
  }
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = is_unnamed || (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return system(path, flags, mode);
}

namespace {

using Names = std::set<std::string>;

Names names_in(const std::string& directory) {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

void put(const std::string& path, const std::string& content) { std::ofstream(path) << content; }

void write_whole(const std::string& path, const std::string& content) {
  nxd::AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

void replaces(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/model";
  const mode_t mask = ::umask(027);
  for (const char* content : {"first", "", "third"}) {
    write_whole(path, content);
    assert_string_equal(nxd::read_text(path, 100).c_str(), content);
    assert_true(names_in(dir.path()) == Names{"model"});
  }
  ::umask(mask);
  struct stat status = {};
  assert_int_equal(::stat(path.c_str(), &status), 0);
  assert_int_equal(status.st_mode & 0777, 0640);
  {
    nxd::AtomicFile file(path);
    file.write("never", 5);
  }
  assert_string_equal(nxd::read_text(path, 100).c_str(), "third");
  assert_true(names_in(dir.path()) == Names{"model"});
}

// A file that takes the place of another has its permissions, from its first byte on.
void permissions(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/model", other = dir.path() + "/link";
  const auto mode_of = [](const std::string& file) {
    struct stat status = {};
    assert_int_equal(::stat(file.c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  const mode_t mask = ::umask(022);
  for (const mode_t mode : {0600U, 0664U, 0400U, 0777U}) {
    put(path, "old");
    assert_int_equal(::chmod(path.c_str(), mode), 0);
    nxd::AtomicFile file(path);
    file.write("new", 3);
    for (const std::string& name : names_in(dir.path())) {
      assert_int_equal(mode_of(dir.path() + "/" + name), mode);
    }
    file.commit();
    assert_int_equal(mode_of(path), mode);
    assert_string_equal(nxd::read_text(path, 100).c_str(), "new");
    assert_int_equal(::chmod(path.c_str(), 0600), 0);
  }
  // That of the file that a link leads to.
  assert_int_equal(::symlink(path.c_str(), other.c_str()), 0);
  write_whole(other, "beside");
  assert_int_equal(mode_of(other), 0600);
  assert_int_equal(::unlink(other.c_str()), 0);
  ::umask(mask);
}

// A process that is killed in the middle.
void killed_writer(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/model";
  write_whole(path, "old");
  const pid_t child = ::fork();
  if (child == 0) {
    nxd::AtomicFile file(path);
    file.write("half of the new", 15);
    ::raise(SIGKILL);
  }
  int status = 0;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_string_equal(nxd::read_text(path, 100).c_str(), "old");
  // Where files must have a name the next writer finds it.
  if (::open(dir.path().c_str(), O_WRONLY | O_TMPFILE, 0600) < 0) write_whole(path, "new");
  assert_true(names_in(dir.path()) == Names{"model"});
}

// A directory has come to the file's place meanwhile.
void a_place_that_is_taken(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/model";
  nxd_status_t status = NXD_OK;
  try {
    nxd::AtomicFile file(path);
    file.write("new", 3);
    assert_int_equal(::mkdir(path.c_str(), 0700), 0);
    file.commit();
  } catch (const nxd::Error& error) {
    status = error.status();
  }
  assert_int_equal(status, NXD_ERROR_IO);
  assert_true(names_in(dir.path()) == Names{"model"});
}

// No more is read than the reader has room for.
void a_text_that_is_too_large(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/text";
  put(path, "1234");
  assert_string_equal(nxd::read_text(path, 4).c_str(), "1234");
  try {
    nxd::read_text(path, 3);
    fail_msg("%s", "a larger text is read");
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_CORRUPT);
    assert_non_null(std::strstr(error.what(), "/text: expected at most 3 bytes, got 4"));
  }
}

// Left by a writer that had to give its file a name at once, or was killed between name and rename.
void abandoned_files(void**) {
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/model";
  const Names kept = {"model.1.tmp",   "model.1.2.3.tmp", "model.x.2.tmp",
                      "model.1..tmp",  "model..1.tmp",    "other.1.2.tmp",
                      "model.1.2.tmq", "model.tmp",       "other.model.7.8.tmp"};
  for (const std::string& name : kept) put(dir.path() + "/" + name, "somebody's own");
  put(path + ".4711.0.tmp", "abandoned");
  put(path + ".1.23.tmp", "abandoned");
  put(path + ".5.6.tmp", "being written");
  const int writer = ::open((path + ".5.6.tmp").c_str(), O_WRONLY | O_CLOEXEC);
  assert_int_equal(::flock(writer, LOCK_EX | LOCK_NB), 0);
  Names expected = kept;
  expected.insert({"model", "model.5.6.tmp"});
  write_whole(path, "new");
  assert_true(names_in(dir.path()) == expected);
  ::close(writer);
  expected.erase("model.5.6.tmp");
  write_whole(path, "newer");
  assert_true(names_in(dir.path()) == expected);
}

// The longest that a file can have, also one that was abandoned.
void longest_name(void**) {
  const nxd_test::TempDir dir;
  const std::string name(255, 'n'), path = dir.path() + "/" + name;
  put(dir.path() + "/" + std::string(229, 'n') + ".1.23.tmp", "abandoned");
  for (const char* content : {"old", "new"}) {
    write_whole(path, content);
    assert_string_equal(nxd::read_text(path, 100).c_str(), content);
    assert_true(names_in(dir.path()) == Names{name});
  }
  nxd_status_t status = NXD_OK;
  try {
    nxd::AtomicFile file("");
  } catch (const nxd::Error& error) {
    status = error.status();
  }
  assert_int_equal(status, NXD_ERROR_INVALID_ARGUMENT);
}

// A rename would put a file in the place of a pipe that somebody reads from.
void refuses_other_kinds(void**) {
  const nxd_test::TempDir dir;
  const std::string fifo = dir.path() + "/fifo", link = dir.path() + "/link";
  const std::string place = dir.path() + "/socket", directory = dir.path() + "/directory";
  assert_int_equal(::mkfifo(fifo.c_str(), 0600), 0);
  assert_int_equal(::symlink("fifo", link.c_str()), 0);
  assert_int_equal(::mkdir(directory.c_str(), 0700), 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  assert_true(place.size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, place.c_str());
  const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(server);
  const Names before = names_in(dir.path());
  const std::pair<std::string, std::string> all[] = {
      {fifo, "a FIFO"}, {link, "a FIFO"}, {place, "a socket"}, {directory, "a directory"}};
  for (const auto& [path, kind] : all) {
    const std::filesystem::file_type type = std::filesystem::symlink_status(path).type();
    const std::string expected = path + ": expected a regular file, got " + kind;
    try {
      nxd::AtomicFile file(path);
      fail_msg("%s: a file can be begun there", kind.c_str());
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_IO);
      assert_string_equal(error.what(), expected.c_str());
    }
    assert_true(std::filesystem::symlink_status(path).type() == type);
    assert_true(names_in(dir.path()) == before);
  }
}

// A link to a file is replaced itself, also one that leads nowhere.
void replaces_links(void**) {
  const nxd_test::TempDir dir;
  put(dir.path() + "/other", "stays");
  for (const char* target : {"other", "nothing"}) {
    const std::string link = dir.path() + "/to-" + target;
    assert_int_equal(::symlink(target, link.c_str()), 0);
    write_whole(link, "new");
    assert_true(std::filesystem::symlink_status(link).type() ==
                std::filesystem::file_type::regular);
    assert_string_equal(nxd::read_text(link, 100).c_str(), "new");
  }
  assert_string_equal(nxd::read_text(dir.path() + "/other", 100).c_str(), "stays");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(replaces),
      cmocka_unit_test(permissions),
      cmocka_unit_test(killed_writer),
      cmocka_unit_test(abandoned_files),
      cmocka_unit_test(refuses_other_kinds),
      cmocka_unit_test(replaces_links),
      cmocka_unit_test(longest_name),
      cmocka_unit_test(a_place_that_is_taken),
      cmocka_unit_test(a_text_that_is_too_large),
  };
  const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
  must_be_named = true;
  return failed + cmocka_run_group_tests(tests, nullptr, nullptr);
}
