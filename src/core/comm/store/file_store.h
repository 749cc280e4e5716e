#pragma once

#include <unordered_map>

#include "core/comm/store/store.h"

namespace nxd {

// Store in a file: a log of records, each a key and its new value, appended under flock(2). A
// reader keeps the values it has seen and reads on from there. A record that its writer did not
// finish is cut off by the next writer, since only the holder of the lock appends.
class FileStore : public Store {
 public:
  explicit FileStore(std::string path);
  ~FileStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::optional<std::string> wait_bounded(const std::string& key, int64_t timeout_ms) override;

 private:
  class Lock;
  void read_on();
  bool read_record();
  int64_t file_size() const;
  void append(const std::string& key, const std::string& value);
  [[noreturn]] void fail_io(const char* what) const;

  std::string path_;
  int fd_ = -1;
  std::mutex mutex_;
  int64_t offset_ = 0;  // end of the last complete record read
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace nxd
