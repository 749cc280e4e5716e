#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/checkpoint/file.h"

namespace nxd {

// Files that are read together, of any number: the first ones stay open, and of the others the one
// that was read last, for a process may have few at a time. Reading is safe from several threads.
class FileSet {
 public:
  using File = std::shared_ptr<const InputFile>;

  // Opens one more; its index is the number of those before.
  File add(const std::string& path);
  size_t size() const { return entries_.size(); }
  bool contains(const std::string& path) const;  // by whatever name
  const std::string& path(size_t index) const { return entries_[index].path; }
  // CORRUPT where it had to be opened again, and another file has its name by then.
  File open(size_t index) const;

 private:
  struct Entry {
    std::string path;
    InputFile::Identity identity;
    File file;  // null: opened when it is read
  };

  std::vector<Entry> entries_;
  mutable std::mutex mutex_;
  mutable size_t last_ = 0;
  mutable File last_file_;  // that of last_
};

}  // namespace nxd
