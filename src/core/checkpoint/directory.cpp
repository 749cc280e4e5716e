#include "core/checkpoint/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace nxd {
namespace {

namespace fs = std::filesystem;

void check_io(const std::error_code& error, const std::string& path, const char* action) {
  if (error) fail(NXD_ERROR_IO, path, ": cannot ", action, ": ", error.message());
}

std::error_code last_error_code() { return {errno, std::generic_category()}; }

}  // namespace

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check_io(error, path, "create the directory");
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) check_io(last_error_code(), path, "create the directory");
}

std::vector<std::string> entries_of(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entries(path, error);
  while (!error && entries != fs::directory_iterator()) {
    names.push_back(entries->path().filename().string());
    entries.increment(error);
  }
  check_io(error, path, "list the directory");
  std::sort(names.begin(), names.end());
  return names;
}

bool is_regular_file(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::regular;
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) check_io(last_error_code(), from, "rename it");
}

void exchange_paths(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
  const std::error_code error = last_error_code();
  if (error.value() != EINVAL && error.value() != ENOSYS) check_io(error, a, "rename it");
  // A file system without exchange, such as NFS.
  const std::string aside = b + std::string(kAside);
  rename_path(b, aside);
  rename_path(a, b);
  rename_path(aside, a);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check_io(error, path, "remove it");
}

void synchronise(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) check_io(last_error_code(), path, "open");
  const int result = ::fsync(fd);
  const std::error_code error = last_error_code();
  ::close(fd);
  if (result != 0) check_io(error, path, "synchronise");
}

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = directory + "/.lock";
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) check_io(last_error_code(), path, "open");
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const std::error_code error = last_error_code();
  if (error.value() != EWOULDBLOCK) return;  // a file system without locks
  ::close(std::exchange(fd_, -1));
  fail(NXD_ERROR_INVALID_STATE, directory, ": another checkpoint is being written here");
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace nxd
