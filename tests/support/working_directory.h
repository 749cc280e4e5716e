// Another working directory for the process, until the end of the scope.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace nxd_test {

class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::string& path) : before_(std::filesystem::current_path()) {
    change(path);
  }
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  void change(const std::string& path) { std::filesystem::current_path(path); }

 private:
  const std::filesystem::path before_;
};

}  // namespace nxd_test
