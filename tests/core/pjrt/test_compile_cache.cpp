// The directory of compiled programs: entries that are damaged, too many or another user's, writers
// that are killed, locks between processes, and the variables that choose the place.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/pjrt/compile_cache.h"

#include "support/check.h"
#include "support/temp_dir.h"
#include "support/working_directory.h"

namespace {

using nxd::CacheEntry;
using nxd::CompileCache;
using nxd::CompileCacheOptions;

CompileCache cache_in(const nxd_test::TempDir& dir, uint64_t max_bytes = 1 << 20) {
  CompileCacheOptions options;
  options.directory = dir.path() + "/a/b";
  options.max_bytes = max_bytes;
  return CompileCache(options);
}

std::vector<std::string> files_of(const nxd_test::TempDir& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path() + "/a/b")) {
    files.push_back(entry.path().string());
  }
  return files;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Code with every kind of byte.
std::string code(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + size);
  return bytes;
}

void keeps_entries(void**) {
  const nxd_test::TempDir dir;
  const CompileCache cache = cache_in(dir);
  assert_false(cache.read("one").has_value());
  cache.write({"one", NXD_OK, code(1000)});
  cache.write({"two\nlines", NXD_OK, ""});
  cache.write({"bad", NXD_ERROR_UNSUPPORTED, "no such operator"});
  for (const CompileCache& reader : {cache, cache_in(dir)}) {
    assert_true(reader.read("one")->content == code(1000));
    assert_true(reader.read("two\nlines")->content.empty());
    assert_int_equal(reader.read("bad")->status, NXD_ERROR_UNSUPPORTED);
    assert_string_equal(reader.read("bad")->content.c_str(), "no such operator");
  }
  cache.write({"one", NXD_OK, code(10)});
  assert_true(cache.read("one")->content == code(10));
  cache.remove("one");
  assert_false(cache.read("one").has_value());

  CompileCacheOptions again = cache.options();
  again.retry_failed = true;
  assert_false(CompileCache(again).read("bad").has_value());
  assert_true(CompileCache(again).read("two\nlines").has_value());
}

// Each byte changed, each length, and the file of another key: none is read, and all are removed.
void finds_damage(void**) {
  const nxd_test::TempDir dir;
  const CompileCache cache = cache_in(dir);
  cache.write({"key", NXD_OK, code(40)});
  const std::string path = files_of(dir).at(0), bytes = content_of(path);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {1, 128}) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ bit);
      put(path, flipped);
      assert_false(cache.read("key").has_value());
      assert_true(files_of(dir).empty());
    }
    put(path, bytes.substr(0, i));
    assert_false(cache.read("key").has_value());
  }
  put(path, bytes + "x");
  assert_false(cache.read("key").has_value());
  put(path, nxd::write_cache_entry({"other", NXD_OK, code(40)}));
  assert_false(cache.read("key").has_value());
  put(path, bytes);
  assert_true(cache.read("key")->content == code(40));
}

void reads_own_files_alone(void**) {
  const nxd_test::TempDir dir;
  const CompileCache cache = cache_in(dir);
  cache.write({"key", NXD_OK, code(40)});
  const std::string path = files_of(dir).at(0), aside = dir.path() + "/aside";
  std::filesystem::rename(path, aside);
  std::filesystem::create_symlink(aside, path);
  assert_false(cache.read("key").has_value());
  std::filesystem::remove(path);
  assert_int_equal(::mkfifo(path.c_str(), 0600), 0);
  assert_false(cache.read("key").has_value());
  std::filesystem::remove(path);
  std::filesystem::rename(aside, path);
  assert_true(cache.read("key").has_value());
  if (::geteuid() != 0) return;  // root alone can give a file away
  assert_int_equal(::chown(path.c_str(), 12345, 12345), 0);
  assert_false(cache.read("key").has_value());
}

// Entry i was last used i seconds after the epoch, except for the one that is read.
void forgets_the_least_recently_used(void**) {
  const nxd_test::TempDir dir;
  const CompileCache cache = cache_in(dir, 5000);
  const auto key = [](int i) { return "key " + std::to_string(i); };
  std::vector<std::string> known;
  for (int i = 0; i < 4; ++i) {
    cache.write({key(i), NXD_OK, code(1000)});
    for (const std::string& path : files_of(dir)) {
      if (std::find(known.begin(), known.end(), path) != known.end()) continue;
      known.push_back(path);
      const timespec times[2] = {{i + 1, 0}, {i + 1, 0}};
      assert_int_equal(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
  }
  assert_true(cache.read(key(0)).has_value());
  cache.write({key(4), NXD_OK, code(1000)});
  assert_true(cache.read(key(0)).has_value());
  assert_false(cache.read(key(1)).has_value());
  for (int i = 2; i < 5; ++i) assert_true(cache.read(key(i)).has_value());
  // One that is too large by itself is kept until the next.
  cache.write({"large", NXD_OK, code(9000)});
  assert_int_equal(files_of(dir).size(), 1);
  assert_true(cache.read("large").has_value());
}

void survives_killed_writers(void**) {
  const nxd_test::TempDir dir;
  const std::string large = code(1 << 20);
  for (int round = 0; round < 8; ++round) {
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const CompileCache cache = cache_in(dir, 64 << 20);
      for (char c = 0;; ++c) {
        if (::write(ends[1], &c, 1) != 1) ::_exit(1);
        cache.write({"key", NXD_OK, large});
      }
    }
    // Killed somewhere in its second, third, ... write.
    char c;
    for (int i = 0; i < 2 + round % 3; ++i) assert_int_equal(::read(ends[0], &c, 1), 1);
    ::kill(child, SIGKILL);
    assert_int_equal(::waitpid(child, nullptr, 0), child);
    ::close(ends[0]);
    ::close(ends[1]);
    const auto entry = cache_in(dir, 64 << 20).read("key");
    assert_true(entry && entry->content == large);
  }
  const CompileCache cache = cache_in(dir, 64 << 20);
  cache.write({"key", NXD_OK, "new"});
  assert_int_equal(files_of(dir).size(), 1);
  assert_string_equal(cache.read("key")->content.c_str(), "new");
}

// A count that four processes raise under the lock, and a holder that is killed.
void locks(void**) {
  constexpr int kProcesses = 4, kRounds = 40;
  const nxd_test::TempDir dir;
  const std::string count = dir.path() + "/count";
  put(count, "0");
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      const CompileCache cache = cache_in(dir);
      for (int round = 0; round < kRounds; ++round) {
        const auto lock = cache.lock("key");
        if (!lock) ::_exit(1);
        put(count, std::to_string(std::stoi(content_of(count)) + 1));
      }
      ::_exit(0);
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  assert_int_equal(std::stoi(content_of(count)), kProcesses * kRounds);
  assert_true(files_of(dir).empty());

  const CompileCache cache = cache_in(dir);
  int ends[2];
  assert_int_equal(::pipe(ends), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto lock = cache.lock("key");
    if (::write(ends[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char c;
  assert_int_equal(::read(ends[0], &c, 1), 1);
  const auto other = cache.lock("another key");
  assert_true(other != nullptr);
  ::setenv("NXD_TIMEOUT_MS", "30", 1);
  assert_true(cache.lock("key") == nullptr);
  ::unsetenv("NXD_TIMEOUT_MS");
  ::kill(holder, SIGKILL);
  assert_int_equal(::waitpid(holder, nullptr, 0), holder);
  assert_true(cache.lock("key") != nullptr);
}

void remembers_digests(void**) {
  const nxd_test::TempDir dir;
  const CompileCache cache = cache_in(dir);
  const std::string path = dir.path() + "/plugin";
  put(path, "one");
  const std::string one = cache.digest_of_file(path);
  assert_string_equal(cache.digest_of_file(path).c_str(), one.c_str());
  assert_int_equal(files_of(dir).size(), 1);
  std::filesystem::rename(path, dir.path() + "/old");
  put(path, "two");
  assert_string_not_equal(cache.digest_of_file(path).c_str(), one.c_str());
  try {
    cache.digest_of_file(dir.path() + "/missing");
    fail_msg("a missing file has no digest");
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_IO);
  }
}

void goes_without(void**) {
  const nxd_test::TempDir dir;
  put(dir.path() + "/file", "");
  CompileCacheOptions options;
  options.directory = dir.path() + "/file/below";
  static int warnings = 0;
  nxd::set_log_level(NXD_LOG_WARN);
  nxd::set_log_callback([](nxd_log_level_t, const char*, void*) { ++warnings; }, nullptr, nullptr);
  for (int i = 0; i < 3; ++i) assert_false(CompileCache(options).is_on());
  nxd::set_log_callback(nullptr, nullptr, nullptr);
  nxd::set_log_level(NXD_LOG_OFF);
  assert_int_equal(warnings, 1);
  assert_false(CompileCache(CompileCacheOptions{}).is_on());
  // A directory that goes away is a warning, too.
  const CompileCache cache = cache_in(dir);
  std::filesystem::remove_all(dir.path() + "/a");
  cache.write({"key", NXD_OK, "code"});
  assert_false(cache.read("key").has_value());
  assert_true(cache.lock("key") == nullptr);
}

struct Variable {
  const char* name;
  const char* value;
};

CompileCacheOptions with(const std::vector<Variable>& variables) {
  for (const char* name :
       {"NEURON_CC_FLAGS", "NEURON_COMPILE_CACHE_URL", "NXD_COMPILE_CACHE_MB", "XDG_CACHE_HOME"}) {
    ::unsetenv(name);
  }
  ::setenv("HOME", "/home/somebody", 1);
  for (const Variable& variable : variables) ::setenv(variable.name, variable.value, 1);
  return CompileCacheOptions::from_environment();
}

void reads_the_environment(void**) {
  const char* const url = "NEURON_COMPILE_CACHE_URL";
  const char* const flags = "NEURON_CC_FLAGS";
  const auto directory = [](const std::vector<Variable>& variables) {
    return with(variables).directory;
  };
  assert_true(directory({}) == "/home/somebody/.cache/nxd/compiled");
  assert_true(directory({{"XDG_CACHE_HOME", "/cache"}}) == "/cache/nxd/compiled");
  assert_true(directory({{url, "/var/x"}}) == "/var/x");
  assert_true(directory({{url, "file:///var/x"}}) == "/var/x");
  assert_true(directory({{url, "s3://bucket/x"}}).empty());
  assert_true(directory({{url, "/var/x"}, {flags, "-O1 --cache_dir=/var/y"}}) == "/var/y");
  assert_true(directory({{url, "/var/x"}, {flags, "--cache_dir /var/z --model-type x"}}) ==
              "/var/z");
  assert_true(directory({{url, "/var/x"}, {flags, "--no_cache"}}).empty());
  assert_true(directory({{"NXD_COMPILE_CACHE_MB", "0"}}).empty());

  const CompileCacheOptions options =
      with({{flags, "--retry_failed_compilation -O1 --cache_dir=/x  --auto-cast=none"},
            {"NXD_COMPILE_CACHE_MB", "7"}});
  assert_true(options.retry_failed);
  assert_true(options.compiler_flags == "-O1 --auto-cast=none");
  assert_true(options.max_bytes == 7 << 20);
  assert_false(with({}).retry_failed);
  for (const char* bad : {"-1", "x", "9223372036854775807"}) {
    try {
      with({{"NXD_COMPILE_CACHE_MB", bad}});
      fail_msg("NXD_COMPILE_CACHE_MB=%s is accepted", bad);
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    }
  }
}

// A thread compiles while the program changes its working directory: no lock is left.
void stays_where_it_is(void**) {
  const nxd_test::TempDir dir;
  nxd_test::WorkingDirectory here(dir.path());
  std::filesystem::create_directory("elsewhere");
  CompileCacheOptions options;
  options.directory = "a/b";
  const CompileCache cache(options);
  auto lock = cache.lock("key");
  assert_true(lock != nullptr);
  here.change("elsewhere");
  cache.write({"key", NXD_OK, code(10)});
  lock.reset();
  const auto entry = cache.read("key");
  assert_true(entry.has_value() && entry->content == code(10));
  assert_int_equal(files_of(dir).size(), 1);
  assert_true(std::filesystem::is_empty(dir.path() + "/elsewhere"));
}

}  // namespace

int main() {
  ::setenv("NXD_LOG_LEVEL", "off", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(keeps_entries),           cmocka_unit_test(finds_damage),
      cmocka_unit_test(reads_own_files_alone),   cmocka_unit_test(forgets_the_least_recently_used),
      cmocka_unit_test(survives_killed_writers), cmocka_unit_test(locks),
      cmocka_unit_test(remembers_digests),       cmocka_unit_test(goes_without),
      cmocka_unit_test(reads_the_environment),   cmocka_unit_test(stays_where_it_is),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
