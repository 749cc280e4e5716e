#include "core/checkpoint/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/above_stdio.h"
#include "core/base/blocked_signals.h"
#include "core/base/open_directory.h"
#include "core/base/proc_file.h"
#include "core/base/regular_file.h"
#include "core/checkpoint/checksum.h"

namespace nxd {
namespace {

// The most that Linux reads or writes in one call is a little less than 2 GiB.
constexpr size_t kMaximumTransfer = size_t{1} << 30;

[[noreturn]] void fail_io(const std::string& path, const char* action) {
  const int code = errno;
  fail(NXD_ERROR_IO, path, ": cannot ", action, ": ", std::strerror(code));
}

// A temporary file belongs to the process that holds its lock; the system lets go of the lock when
// the process ends in any way.
bool lock_at_once(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; }

bool has_name(int fd) {
  struct stat status = {};
  return ::fstat(fd, &status) == 0 && status.st_nlink > 0;
}

// The part of a temporary file's name that is before the process and the number. File systems take
// names of 255 bytes, and a file may use all of them.
std::string temporary_stem(const std::string& name) {
  constexpr size_t kMost = 255 - std::string_view(".2147483647.4294967295.tmp").size();
  return name.substr(0, kMost);
}

// "STEM.PROCESS.NUMBER.tmp", for a file of this stem.
bool is_temporary_of(const std::string& entry, const std::string& name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!entry.starts_with(name + ".") || !entry.ends_with(kEnd)) return false;
  const size_t start = name.size() + 1;
  if (entry.size() < start + kEnd.size()) return false;
  const std::string middle = entry.substr(start, entry.size() - kEnd.size() - start);
  return std::count(middle.begin(), middle.end(), '.') == 1 && middle.front() != '.' &&
         middle.back() != '.' && middle.find_first_not_of("0123456789.") == std::string::npos;
}

// Removes what writers of this file have left that were killed.
void remove_abandoned(const std::string& directory, const std::string& name) {
  const OpenDirectory entries(::opendir(directory.c_str()));
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries.get())) {
    if (!is_temporary_of(entry->d_name, name)) continue;
    const int at = ::dirfd(entries.get());
    const int fd = ::openat(at, entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (lock_at_once(fd)) ::unlinkat(at, entry->d_name, 0);
    ::close(fd);
  }
}

std::string link_of(int fd) { return own_proc(text("fd/", fd)); }

}  // namespace

// The open of a FIFO would wait for its other end, that of some devices for a carrier.
InputFile::InputFile(const std::string& path) : path_(path) {
  fd_ = above_stdio(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd_ < 0) fail_io(path, "open");
  struct stat status = {};
  if (::fstat(fd_, &status) != 0) {
    const int code = errno;
    ::close(fd_);
    errno = code;
    fail_io(path, "look at it");
  }
  try {
    check_regular_file(path, status.st_mode);
  } catch (...) {
    ::close(fd_);
    throw;
  }
  size_ = static_cast<uint64_t>(status.st_size);
  device_ = status.st_dev;
  number_ = status.st_ino;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      device_(other.device_),
      number_(other.number_) {}

void InputFile::read(uint64_t offset, void* out, size_t size) const {
  auto* bytes = static_cast<unsigned char*>(out);
  while (size > 0) {
    const ssize_t got =
        ::pread(fd_, bytes, std::min(size, kMaximumTransfer), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      fail_io(path_, "read");
    }
    if (got == 0)
      fail(NXD_ERROR_CORRUPT, path_, ": expected ", size, " more bytes at ", offset,
           ", found the file's end");
    bytes += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
}

void InputFile::for_each_part(const std::function<void(std::string_view part)>& visit) const {
  constexpr uint64_t kReadAtOnce = uint64_t{1} << 20;
  std::vector<char> room(static_cast<size_t>(std::min(size_, kReadAtOnce)));
  for (uint64_t at = 0; at < size_; at += room.size()) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(room.size(), size_ - at));
    read(at, room.data(), count);
    visit(std::string_view(room.data(), count));
  }
}

void check_replaceable(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) check_regular_file(path, status.st_mode);
}

namespace {

// A file that its owner has kept from others, or has shared with them, stays so when it is written
// over. That of another user has permissions for its owner, who would lose them: this one gives its
// own. A file system without permissions takes none.
void keep_permissions(const std::string& path, int fd) noexcept {
  struct stat old = {};
  if (::stat(path.c_str(), &old) != 0 || old.st_uid != ::geteuid()) return;
  static_cast<void>(::fchmod(fd, old.st_mode & 0777U));
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, Checksum* checksum)
    : path_(path), checksum_(checksum) {
  check_replaceable(path);
  const size_t slash = path.rfind('/');
  directory_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  check_argument(!name.empty(), "path: expected the name of a file, got \"", path, "\"");
  stem_ = (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + temporary_stem(name);
  remove_abandoned(directory_, temporary_stem(name));
  // Not mkostemp: it gives no access to others, while a checkpoint is a file like any other.
  fd_ = above_stdio(::open(directory_.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  if (fd_ >= 0 && ::access(link_of(fd_).c_str(), F_OK) != 0) ::close(std::exchange(fd_, -1));
  if (fd_ < 0) create_named();
  keep_permissions(path, fd_);
}

std::string AtomicFile::next_name() const {
  static std::atomic<unsigned> number{0};
  return text(stem_, ".", ::getpid(), ".", number++, ".tmp");
}

// For a file system that makes no files without a name, and for systems without /proc.
void AtomicFile::create_named() {
  for (;;) {
    temporary_ = next_name();
    fd_ = above_stdio(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) fail_io(path_, "create a temporary file beside it");
    // Until the lock is taken another writer may take the file for abandoned. No writer does on
    // a file system without locks.
    const bool taken = !lock_at_once(fd_) && errno == EWOULDBLOCK;
    if (!taken && has_name(fd_)) return;
    ::close(std::exchange(fd_, -1));
  }
}

// A new file gets its name only when it is complete; a rename then puts it in the old one's place.
void AtomicFile::give_name() {
  if (!temporary_.empty()) return;
  lock_at_once(fd_);
  for (;;) {
    const std::string name = next_name();
    if (::linkat(AT_FDCWD, link_of(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) fail_io(path_, "create a temporary file beside it");
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

// A piece is added to the checksum while it lies in the processor's cache, and the disk takes the
// one before meanwhile.
void AtomicFile::write(const void* data, size_t size) {
  constexpr size_t kPiece = size_t{1} << 20;
  const HeldSignal no_sigxfsz(SIGXFSZ);
  std::string_view left(static_cast<const char*>(data), size);
  while (!left.empty()) {
    const std::string_view piece = left.substr(0, checksum_ ? kPiece : kMaximumTransfer);
    write_piece(piece);
    if (checksum_) checksum_->add(piece);
    left.remove_prefix(piece.size());
  }
}

void AtomicFile::write_piece(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      fail_io(path_, "write");
    }
    bytes.remove_prefix(static_cast<size_t>(put));
    hand_over(static_cast<uint64_t>(put));
  }
}

// The disk writes what it has while more comes. Otherwise all would wait for commit(). Memory of
// the part before goes back to the system once the disk has it: a large file is not read again
// soon, and pages that are used again and again take the system less time than new ones.
void AtomicFile::hand_over(uint64_t size) {
  constexpr uint64_t kAtOnce = uint64_t{16} << 20;
  written_ += size;
  if (written_ - handed_over_ < kAtOnce) return;
  begin_writing(handed_over_, written_);
  let_go(let_go_, handed_over_);
  let_go_ = handed_over_;
  handed_over_ = written_;
}

// A file system that cannot do so has lost nothing.
void AtomicFile::begin_writing(uint64_t begin, uint64_t end) {
  static_cast<void>(::sync_file_range(fd_, static_cast<off64_t>(begin),
                                      static_cast<off64_t>(end - begin), SYNC_FILE_RANGE_WRITE));
}

// An error of the disk is told to this call or to fsync(), not to both.
void AtomicFile::let_go(uint64_t begin, uint64_t end) {
  if (begin == end) return;
  const auto offset = static_cast<off64_t>(begin), count = static_cast<off64_t>(end - begin);
  constexpr unsigned kWait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(fd_, offset, count, kWait) != 0) {
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT) fail_io(path_, "write");
    return;
  }
  static_cast<void>(::posix_fadvise(fd_, offset, count, POSIX_FADV_DONTNEED));
}

void AtomicFile::commit() {
  check_state(fd_ >= 0, path_, ": committed already");
  if (::fsync(fd_) != 0) fail_io(path_, "synchronise");
  give_name();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_io(path_, "rename to it");
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) fail_io(path_, "close");
  // The new name itself is durable only with its directory.
  const int directory = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int code = directory < 0 || synchronise_open(directory) != 0 ? errno : 0;
  if (directory >= 0) ::close(directory);
  if (code == 0) return;
  fail(NXD_ERROR_IO, directory_, ": cannot synchronise: ", std::strerror(code), "; ", path_,
       " is complete and can be read, but may be lost if the machine fails now: write it again");
}

int synchronise_open(int fd) noexcept {
  if (::fsync(fd) == 0) return 0;
  const int code = errno;
  struct stat status = {};
  const bool lacks_call = code == EINVAL && ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  errno = code;
  return lacks_call ? 0 : -1;
}

bool is_directory(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool file_exists(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0;
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) fail_io(path, "remove it");
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

std::string read_text(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    fail(NXD_ERROR_CORRUPT, path, ": expected at most ", limit, " bytes, got ", file.size());
  }
  std::string content(static_cast<size_t>(file.size()), '\0');
  file.read(0, content.data(), content.size());
  return content;
}

}  // namespace nxd
