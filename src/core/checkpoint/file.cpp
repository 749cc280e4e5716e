#include "core/checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/base/blocked_signals.h"

namespace nxd {
namespace {

// The most that Linux reads or writes in one call is a little less than 2 GiB.
constexpr size_t kMaximumTransfer = size_t{1} << 30;

[[noreturn]] void fail_io(const std::string& path, const char* action) {
  const int code = errno;
  fail(NXD_ERROR_IO, path, ": cannot ", action, ": ", std::strerror(code));
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

// The open of a FIFO would wait for its other end, that of some devices for a carrier.
InputFile::InputFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd_ < 0) fail_io(path, "open");
  struct stat status = {};
  if (::fstat(fd_, &status) != 0) {
    const int code = errno;
    ::close(fd_);
    errno = code;
    fail_io(path, "look at it");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd_);
    fail(NXD_ERROR_IO, path, ": expected a regular file, got ", kind_of(status.st_mode));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

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

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  const size_t slash = path.rfind('/');
  directory_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  // Not mkostemp: it gives no access to others, while a checkpoint is a file like any other.
  static std::atomic<unsigned> number{0};
  do {
    temporary_ = text(path, ".", ::getpid(), ".", number++, ".tmp");
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail_io(path, "create a temporary file beside it");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const HeldSignal no_sigxfsz(SIGXFSZ);
  const auto* bytes = static_cast<const unsigned char*>(data);
  while (size > 0) {
    const ssize_t put = ::write(fd_, bytes, std::min(size, kMaximumTransfer));
    if (put < 0) {
      if (errno == EINTR) continue;
      fail_io(path_, "write");
    }
    bytes += put;
    size -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  check_state(fd_ >= 0, path_, ": committed already");
  if (::fsync(fd_) != 0) fail_io(path_, "synchronise");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_io(path_, "rename to it");
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) fail_io(path_, "close");
  // The new name itself is durable only with its directory.
  const int directory = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) fail_io(directory_, "open");
  const int synced = ::fsync(directory);
  const int code = errno;
  ::close(directory);
  errno = code;
  if (synced != 0) fail_io(directory_, "synchronise");
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

std::string read_text(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  check_argument(file.size() <= limit, path, ": expected at most ", limit, " bytes, got ",
                 file.size());
  std::string content(static_cast<size_t>(file.size()), '\0');
  file.read(0, content.data(), content.size());
  return content;
}

}  // namespace nxd
