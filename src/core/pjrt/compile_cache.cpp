#include "core/pjrt/compile_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/above_stdio.h"
#include "core/base/absolute_path.h"
#include "core/base/environment.h"
#include "core/base/log.h"
#include "core/base/sleep.h"
#include "core/base/text_stream.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/file.h"

namespace nxd {
namespace {

constexpr const char* kEntryEnding = ".compiled";
constexpr const char* kLockEnding = ".lock";
constexpr uint64_t kMiB = uint64_t{1} << 20;

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// The whole file, if it is one of this user's or root's; no link is followed to it.
std::optional<std::string> read_trusted(const std::string& path) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status = {};
  if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    log(NXD_LOG_WARN, "compile cache: ", path, " belongs to user ", status.st_uid,
        " and is not used");
    return std::nullopt;
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.fd(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  ::futimens(file.fd(), nullptr);  // used now
  return bytes;
}

struct NeuronFlags {
  std::optional<std::string> cache_directory;
  bool no_cache = false, retry_failed = false;
  std::string others;
};

NeuronFlags neuron_flags() {
  NeuronFlags flags;
  TextReader words(env::get("NEURON_CC_FLAGS").value_or(""));
  constexpr std::string_view kDirectory = "--cache_dir";
  for (std::string word; words >> word;) {
    if (word == "--no_cache") {
      flags.no_cache = true;
    } else if (word == "--retry_failed_compilation") {
      flags.retry_failed = true;
    } else if (word == kDirectory) {
      if (words >> word) flags.cache_directory = word;
    } else if (word.starts_with(std::string(kDirectory) + "=")) {
      flags.cache_directory = word.substr(kDirectory.size() + 1);
    } else {
      flags.others += (flags.others.empty() ? "" : " ") + word;
    }
  }
  return flags;
}

std::string default_directory() {
  if (const auto cache = env::get("XDG_CACHE_HOME")) return *cache + "/nxd/compiled";
  if (const auto home = env::get("HOME")) return *home + "/.cache/nxd/compiled";
  return "";
}

// Each program that is compiled comes this way, and one warning of a place is enough.
bool is_first_time(const std::string& place) {
  static std::mutex mutex;
  static auto* places = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return places->insert(place).second;
}

// A path, or a URL of a file. Another URL is for the compiler of its own vendor.
std::string directory_of(const std::string& url) {
  constexpr std::string_view kFile = "file://";
  if (url.starts_with(kFile)) return url.substr(kFile.size());
  if (url.find("://") == std::string::npos) return url;
  if (is_first_time(url)) {
    log(NXD_LOG_WARN, "compile cache: ", url, " is no directory; programs are not kept");
  }
  return "";
}

}  // namespace

CompileCacheOptions CompileCacheOptions::from_environment() {
  CompileCacheOptions options;
  const NeuronFlags flags = neuron_flags();
  const int64_t mib =
      env::get_int("NXD_COMPILE_CACHE_MB").value_or(static_cast<int64_t>(options.max_bytes / kMiB));
  check_argument(mib >= 0 && mib <= INT64_MAX / static_cast<int64_t>(kMiB),
                 "environment variable NXD_COMPILE_CACHE_MB: expected 0 or more, got ", mib);
  options.max_bytes = static_cast<uint64_t>(mib) * kMiB;
  options.retry_failed = flags.retry_failed;
  options.compiler_flags = flags.others;
  if (flags.no_cache || mib == 0) return options;
  const auto url =
      flags.cache_directory ? flags.cache_directory : env::get("NEURON_COMPILE_CACHE_URL");
  options.directory = url ? directory_of(*url) : default_directory();
  return options;
}

CompileCache::CompileCache(CompileCacheOptions options) : options_(std::move(options)) {
  if (!is_on()) return;
  try {
    // A thread may compile while the program changes its working directory.
    options_.directory = absolute_path(options_.directory);
    make_directories(options_.directory);
  } catch (const Error& error) {
    if (is_first_time(options_.directory)) {
      log(NXD_LOG_WARN, "compile cache: programs are not kept: ", error.what());
    }
    options_.directory.clear();
  }
}

std::string CompileCache::path_of(const std::string& key, const char* ending) const {
  return text(options_.directory, "/", Digest().add(key).hex(), ending);
}

std::optional<CacheEntry> CompileCache::read(const std::string& key) const {
  const std::string path = path_of(key, kEntryEnding);
  const auto bytes = read_trusted(path);
  if (!bytes) return std::nullopt;
  auto entry = read_cache_entry(*bytes);
  if (!entry || entry->key != key) {
    log(NXD_LOG_WARN, "compile cache: ", path, " is damaged; its program is compiled again");
    remove(key);
    return std::nullopt;
  }
  if (entry->status != NXD_OK && options_.retry_failed) return std::nullopt;
  return entry;
}

void CompileCache::write(const CacheEntry& entry) const noexcept {
  try {
    const std::string path = path_of(entry.key, kEntryEnding);
    const std::string bytes = write_cache_entry(entry);
    AtomicFile file(path);
    file.write(bytes.data(), bytes.size());
    file.commit();
    evict(path);
  } catch (const std::exception& error) {
    log(NXD_LOG_WARN, "compile cache: a program is not kept: ", error.what());
  }
}

void CompileCache::remove(const std::string& key) const noexcept {
  try {
    ::unlink(path_of(key, kEntryEnding).c_str());
  } catch (const std::exception&) {
    // The next writer replaces it.
  }
}

void CompileCache::evict(const std::string& newest) const {
  struct File {
    std::string path;
    timespec used;
    uint64_t size;
  };
  std::vector<File> files;
  uint64_t total = 0;
  for (const std::string& name : entries_of(options_.directory)) {
    const std::string path = options_.directory + "/" + name;
    struct stat status = {};
    if (!name.ends_with(kEntryEnding) || ::lstat(path.c_str(), &status) != 0) continue;
    total += static_cast<uint64_t>(status.st_size);
    if (path != newest) {
      files.push_back({path, status.st_mtim, static_cast<uint64_t>(status.st_size)});
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const File& file : files) {
    if (total <= options_.max_bytes) return;
    if (::unlink(file.path.c_str()) == 0) total -= file.size;
  }
}

std::string CompileCache::digest_of_file(const std::string& path) const {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    fail(NXD_ERROR_IO, path, ": cannot look at it: ", std::strerror(errno));
  }
  const std::string key =
      text("file ", path, ' ', status.st_dev, ' ', status.st_ino, ' ', status.st_size, ' ',
           status.st_mtim.tv_sec, '.', status.st_mtim.tv_nsec, ' ', status.st_ctim.tv_sec, '.',
           status.st_ctim.tv_nsec);
  if (const auto known = read(key)) return known->content;
  const std::string digest = Digest().add(InputFile(path)).hex();
  write({key, NXD_OK, digest});
  return digest;
}

class CompileCache::Lock {
 public:
  Lock(std::string path, std::shared_ptr<const void> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  // The file goes while the lock is held, so that nobody's lock is on a file without a name.
  ~Lock() { ::unlink(path_.c_str()); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::string path_;
  std::shared_ptr<const void> file_;  // closes it
};

std::shared_ptr<CompileCache::Lock> CompileCache::lock(const std::string& key) const {
  const std::string path = path_of(key, kLockEnding);
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::milliseconds bound(env::timeout_ms());
  for (bool told = false;;) {
    const int fd =
        above_stdio(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd < 0) return nullptr;
    auto held = std::make_shared<OpenFile>(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      struct stat named = {}, opened = {};
      const bool is_named = ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
                            named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
      if (is_named) return std::make_shared<Lock>(path, std::move(held));
      continue;  // the holder before us has removed it
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return nullptr;
    if (std::chrono::steady_clock::now() - start > bound) return nullptr;
    if (!told) {
      log(NXD_LOG_INFO, "compile cache: waiting for another process, which compiles this program");
    }
    told = true;
    sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace nxd
