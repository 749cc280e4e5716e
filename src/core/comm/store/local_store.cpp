#include "core/comm/store/local_store.h"

namespace nxd {

void LocalStore::set(const std::string& key, const std::string& value) {
  std::string copy = value;  // a key is there with its value or not at all
  std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = std::move(copy);
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
      wrapping_sum(found == values_.end() ? 0 : parse_counter(key, found->second), amount);
  values_[key] = std::to_string(sum);
  return sum;
}

}  // namespace nxd
