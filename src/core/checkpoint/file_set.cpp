#include "core/checkpoint/file_set.h"

#include <sys/stat.h>

#include <algorithm>

#include "core/base/absolute_path.h"

namespace nxd {
namespace {

// More than a model of Hugging Face's has; a process may by default have 1024 files.
constexpr size_t kMostKeptOpen = 256;

}  // namespace

FileSet::File FileSet::add(const std::string& path) {
  auto file = std::make_shared<const InputFile>(path);
  const bool is_kept = entries_.size() < kMostKeptOpen;
  // The program may be elsewhere when it is opened again.
  entries_.push_back(
      {is_kept ? path : absolute_path(path), file->identity(), is_kept ? file : nullptr});
  return file;
}

bool FileSet::contains(const std::string& path) const {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return false;
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.identity.device == status.st_dev && entry.identity.number == status.st_ino;
  });
}

FileSet::File FileSet::open(size_t index) const {
  const Entry& entry = entries_[index];
  if (entry.file) return entry.file;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (last_file_ && last_ == index) return last_file_;
  auto file = std::make_shared<const InputFile>(entry.path);
  if (!(file->identity() == entry.identity)) {
    fail(NXD_ERROR_CORRUPT, entry.path, ": expected the file whose header was read, got another");
  }
  last_ = index;
  last_file_ = file;
  return file;
}

}  // namespace nxd
