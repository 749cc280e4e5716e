// Files that are written whole or not at all, whatever becomes of their writer.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "core/checkpoint/file.h"

#include "support/check.h"
#include "support/temp_dir.h"

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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(replaces),
      cmocka_unit_test(killed_writer),
      cmocka_unit_test(abandoned_files),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
