#include "core/comm/local_store.h"

namespace nxd {

void LocalStore::set(const std::string& key, const std::string& value) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
}

std::optional<std::string> LocalStore::get(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

int64_t LocalStore::add(const std::string& key, int64_t amount) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = values_.find(key);
  const int64_t sum =
      add_to_counter(key, found == values_.end() ? nullptr : &found->second, amount);
  values_[key] = std::to_string(sum);
  return sum;
}

}  // namespace nxd
