#pragma once

#include <unordered_map>

#include "core/comm/store/store.h"

namespace nxd {

// Store of the ranks that live on threads of this process.
class LocalStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace nxd
