#include "core/comm/store/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/base/above_stdio.h"
#include "core/base/blocked_signals.h"
#include "core/base/hash.h"
#include "core/base/sleep.h"
#include "core/comm/net/interrupt.h"
#include "core/comm/store/store_timeout.h"

namespace nxd {
namespace {

// As a store over a network has by default.
constexpr int64_t kLockBoundMs = 300000;
constexpr auto kLongestLockPause = std::chrono::microseconds(10000);

constexpr uint64_t kFileMagic = 0x31534c4644584eULL;  // "NXDLFS1"

struct RecordHead {
  uint64_t magic;
  uint64_t key_size;
  uint64_t value_size;
  uint64_t checksum;
};

// To tell a complete record from a partial one.
uint64_t checksum_of(const std::string& bytes) { return Hash().add(bytes).value(); }

// Bytes read at an offset; fewer than size only at the end of the file, -1 on failure.
ssize_t read_at(int fd, void* out, size_t size, int64_t offset) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::pread(fd, static_cast<char*>(out) + done, size - done,
                              static_cast<off_t>(offset + static_cast<int64_t>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

// The file's lock, and the mutex by which threads of this process share it. A holder needs them for
// as long as one record takes. One that was stopped in between may hold the file's for ever, so the
// wait for it has a bound, and asks the interrupt callback. Threads with other bounds do not wait
// for this one meanwhile.
class FileStore::Lock {
 public:
  Lock(FileStore& store, int mode) : store_(store), threads_(store.mutex_, std::defer_lock) {
    const int64_t bound_ms = StoreTimeout::bound_ms(kLockBoundMs);
    const Deadline deadline = Deadline::after_ms(bound_ms);
    auto pause = std::chrono::microseconds(100);
    while (!try_lock(mode)) {
      if (pause >= kLongestLockPause) InterruptScope::check();
      if (deadline.expired()) {
        fail(NXD_ERROR_TIMEOUT, "file store \"", store_.path_,
             "\": another process has held its "
             "lock for ",
             bound_ms, " ms, and may be stopped");
      }
      sleep_for(pause);
      pause = std::min(pause * 2, kLongestLockPause);
    }
  }
  // File systems that ask a server or a process may be interrupted by a signal here, too.
  ~Lock() {
    while (::flock(store_.fd_, LOCK_UN) != 0 && errno == EINTR) {
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  bool try_lock(int mode) {
    threads_.lock();
    while (::flock(store_.fd_, mode | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) store_.fail_io("cannot lock");
      threads_.unlock();
      return false;
    }
    return true;
  }

  const FileStore& store_;
  std::unique_lock<std::mutex> threads_;
};

FileStore::FileStore(std::string path) : path_(std::move(path)) {
  fd_ = above_stdio(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd_ < 0) fail_io("cannot open");
  try {
    const Lock lock(*this, LOCK_SH);
    read_on();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

FileStore::~FileStore() { ::close(fd_); }

void FileStore::fail_io(const char* what) const {
  fail(NXD_ERROR_IO, "file store \"", path_, "\": ", what, ": ", std::strerror(errno));
}

int64_t FileStore::file_size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail_io("cannot read");
  return status.st_size;
}

bool FileStore::read_record() {
  RecordHead head;
  const ssize_t n = read_at(fd_, &head, sizeof head, offset_);
  if (n < 0) fail_io("cannot read");
  const auto read = static_cast<size_t>(n);
  const size_t known = std::min(read, sizeof head.magic);
  if (known > 0 && std::memcmp(&head, &kFileMagic, known) != 0) {
    fail(NXD_ERROR_CORRUPT, "file store \"", path_, "\": byte ", offset_,
         " does not start a record; the file is not a store");
  }
  constexpr uint64_t kLimit = kLargestValue;
  if (read < sizeof head || head.key_size > kLimit || head.value_size > kLimit) return false;
  // No memory for more than there is in the file.
  const uint64_t needed = sizeof head + head.key_size + head.value_size;
  if (static_cast<uint64_t>(file_size() - offset_) < needed) return false;
  std::string body(head.key_size + head.value_size, '\0');
  const ssize_t m =
      read_at(fd_, body.data(), body.size(), offset_ + static_cast<int64_t>(sizeof head));
  if (m < 0) fail_io("cannot read");
  if (static_cast<size_t>(m) < body.size() || checksum_of(body) != head.checksum) return false;
  values_[body.substr(0, head.key_size)] = body.substr(head.key_size);
  offset_ += static_cast<int64_t>(sizeof head + body.size());
  return true;
}

// Complete records stay, so a shorter file is one that somebody else has written to.
void FileStore::read_on() {
  const int64_t size = file_size();
  if (size < offset_) {
    fail(NXD_ERROR_CORRUPT, "file store \"", path_, "\": expected at least the ", offset_,
         " bytes that were read before, got ", size, "; the file is not a store any more");
  }
  while (read_record()) {
  }
}

void FileStore::append(const std::string& key, const std::string& value) {
  // A reader takes what is larger for the end of a partial record.
  for (const std::string* part : {&key, &value}) {
    check_argument(part->size() <= kLargestValue, "file store \"", path_, "\": expected at most ",
                   kLargestValue, " bytes, got ", part->size());
  }
  // Whatever follows the last complete record was left by a writer that died.
  if (::ftruncate(fd_, static_cast<off_t>(offset_)) != 0) fail_io("cannot truncate");
  const HeldSignal no_sigxfsz(SIGXFSZ);
  const std::string body = key + value;
  const RecordHead head{kFileMagic, key.size(), value.size(), checksum_of(body)};
  std::string record(reinterpret_cast<const char*>(&head), sizeof head);
  record += body;
  size_t done = 0;
  while (done < record.size()) {
    const ssize_t n = ::pwrite(fd_, record.data() + done, record.size() - done,
                               static_cast<off_t>(offset_ + static_cast<int64_t>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io("cannot write");
    done += static_cast<size_t>(n);
  }
  read_on();  // what was written is read as others read it
}

void FileStore::set(const std::string& key, const std::string& value) {
  const Lock lock(*this, LOCK_EX);
  read_on();
  append(key, value);
}

std::optional<std::string> FileStore::get(const std::string& key) {
  const Lock lock(*this, LOCK_SH);
  read_on();
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> FileStore::wait_bounded(const std::string& key, int64_t timeout_ms) {
  const StoreTimeout bounded(StoreTimeout::bound_of_wait_ms(timeout_ms));
  return wait(key, Deadline::after_ms(timeout_ms));
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  const Lock lock(*this, LOCK_EX);
  read_on();
  const auto found = values_.find(key);
  const int64_t sum =
      wrapping_sum(found == values_.end() ? 0 : parse_counter(key, found->second), amount);
  append(key, std::to_string(sum));
  return sum;
}

}  // namespace nxd
