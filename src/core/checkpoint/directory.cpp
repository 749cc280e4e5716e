#include "core/checkpoint/directory.h"

#include <fcntl.h>
#include <ftw.h>
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

#include "core/base/above_stdio.h"
#include "core/base/log.h"
#include "core/base/open_directory.h"
#include "core/checkpoint/file.h"

namespace nxd {
namespace {

namespace fs = std::filesystem;

void check_io(const std::error_code& error, const std::string& path, const char* action) {
  if (error) fail(NXD_ERROR_IO, path, ": cannot ", action, ": ", error.message());
}

std::error_code last_error_code() { return {errno, std::generic_category()}; }

int remove_entry(const char* path, const struct stat*, int kind, struct FTW*) {
  const bool is_directory = kind == FTW_DP || kind == FTW_DNR;
  const int result = ::unlinkat(AT_FDCWD, path, is_directory ? AT_REMOVEDIR : 0);
  return result != 0 && errno == ENOENT ? 0 : result;
}

void synchronise_as(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd < 0) check_io(last_error_code(), path, "open");
  const int result = synchronise_open(fd);
  const std::error_code error = last_error_code();
  ::close(fd);
  if (result != 0) check_io(error, path, "synchronise");
}

}  // namespace

void make_directories(const std::string& path) {
  std::error_code error;
  std::vector<std::string> missing;
  for (fs::path at = path; !at.empty() && !has_entry(at); at = at.parent_path()) {
    missing.push_back(at);
  }
  fs::create_directories(path, error);
  check_io(error, path, "create the directory");
  for (const std::string& made : missing) {
    const std::string parent = fs::path(made).parent_path();
    const std::string above = parent.empty() ? "." : parent;
    // One that nobody may list, such as a drop box, cannot be opened for it.
    if (::access(above.c_str(), R_OK) == 0) synchronise_directory(above);
  }
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) check_io(last_error_code(), path, "create the directory");
}

// Not by std::filesystem, whose iterators end the process where they find no memory.
std::vector<std::string> entries_of(const std::string& path) {
  const OpenDirectory directory(::opendir(path.c_str()));
  if (!directory) check_io(last_error_code(), path, "list the directory");
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) check_io(last_error_code(), path, "list the directory");
  std::sort(names.begin(), names.end());
  return names;
}

bool is_regular_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::none) check_io(error, path, "look at it");
  return status.type() == fs::file_type::regular;
}

bool leads_anywhere(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT) check_io(last_error_code(), path, "look at it");
  return false;
}

bool has_entry(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0;
}

void rename_path(const std::string& from, const std::string& to) {
  if (!try_rename(from, to)) check_io({EXDEV, std::generic_category()}, from, "rename it");
}

bool try_rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno != EXDEV) check_io(last_error_code(), from, "rename it");
  return false;
}

bool try_exchange(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  const std::error_code error = last_error_code();
  if (error.value() == EXDEV) return false;
  if (error.value() != EINVAL && error.value() != ENOSYS) check_io(error, a, "rename it");
  // A file system without exchange, such as NFS.
  const std::string aside = b + std::string(kAside);
  rename_path(b, aside);
  try {
    rename_path(a, b);
  } catch (...) {
    const bool is_back = ::rename(aside.c_str(), b.c_str()) == 0;
    if (!is_back) log(NXD_LOG_ERROR, b, " is left under the name ", aside);
    throw;
  }
  rename_path(aside, a);
  return true;
}

void remove_tree(const std::string& path) {
  constexpr int kOpenAtATime = 8;
  if (::nftw(path.c_str(), remove_entry, kOpenAtATime, FTW_DEPTH | FTW_PHYS) == 0) return;
  if (errno != ENOENT) check_io(last_error_code(), path, "remove it");
}

void synchronise(const std::string& path) { synchronise_as(path, O_NONBLOCK | O_NOFOLLOW); }

void synchronise_directory(const std::string& path) { synchronise_as(path, O_DIRECTORY); }

// The open of a FIFO would wait for its other end. The file may be another user's, who lets us read
// it only: that is enough for a lock but on NFS, whose locks are for writers.
DirectoryLock::DirectoryLock(const std::string& directory, const std::string& name,
                             const std::string& busy)
    : path_(directory + "/" + name) {
  check_replaceable(path_);
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  fd_ = above_stdio(::open(path_.c_str(), O_WRONLY | O_CREAT | kFlags, 0666));
  const std::error_code denied = last_error_code();
  const bool is_reader = fd_ < 0 && denied.value() == EACCES;
  if (is_reader) fd_ = above_stdio(::open(path_.c_str(), O_RDONLY | kFlags));
  if (fd_ < 0) check_io(denied, path_, "open");
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const std::error_code error = last_error_code();
  const bool is_held = error.value() == EWOULDBLOCK;
  if (!is_held && !is_reader) return;  // a file system without locks
  ::close(std::exchange(fd_, -1));
  if (!is_held) check_io(denied, path_, "open");
  fail(NXD_ERROR_INVALID_STATE, directory, ": ", busy);
}

bool DirectoryLock::is_in_place() const {
  struct stat own = {}, named = {};
  return ::fstat(fd_, &own) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

// A process that was forked meanwhile has the open file too, and with it the lock, unless that is
// given up.
DirectoryLock::~DirectoryLock() {
  if (fd_ < 0) return;
  static_cast<void>(::flock(fd_, LOCK_UN));
  ::close(fd_);
}

}  // namespace nxd
