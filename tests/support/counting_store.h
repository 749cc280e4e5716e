#ifndef NXD_TESTS_SUPPORT_COUNTING_STORE_H
#define NXD_TESTS_SUPPORT_COUNTING_STORE_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/store/store.h"

// Requests to a store, as a TCP store's server sees them: a get looks first whether the key is
// there and then fetches it.
struct StoreCounts {
  std::atomic<int64_t> requests{0}, bytes{0};
  // Requests that wrote or found something. The number in vain depends on which rank is early.
  std::atomic<int64_t> fruitful{0};
};

class CountingStore : public nxd::Store {
 public:
  CountingStore(std::shared_ptr<nxd::Store> base, std::shared_ptr<StoreCounts> counts)
      : base_(std::move(base)), counts_(std::move(counts)) {}

  void set(const std::string& key, const std::string& value) override {
    count(1, key.size() + value.size(), 1);
    base_->set(key, value);
  }
  std::optional<std::string> get(const std::string& key) override {
    auto value = base_->get(key);
    count(value ? 2 : 1, key.size() + (value ? key.size() + value->size() : 0), value ? 1 : 0);
    return value;
  }
  std::optional<std::vector<std::string>> get_all(const std::vector<std::string>& keys) override {
    auto values = base_->get_all(keys);
    size_t bytes = 0;
    for (const std::string& key : keys) bytes += key.size() * (values ? 2 : 1);
    if (values) {
      for (const std::string& value : *values) bytes += value.size();
    }
    const auto found = static_cast<int64_t>(values ? keys.size() : 0);
    count(1 + found, bytes, found);
    return values;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    count(1, key.size() + 2 * sizeof amount, 1);
    return base_->add(key, amount);
  }
  std::shared_ptr<nxd::Store> open_channel(int64_t timeout_ms) override {
    return std::make_shared<CountingStore>(base_->open_channel(timeout_ms), counts_);
  }
  std::string server_host() const override { return base_->server_host(); }
  bool serves() const override { return base_->serves(); }
  void stop_serving() override { base_->stop_serving(); }

 private:
  void count(int64_t requests, size_t bytes, int64_t fruitful) {
    counts_->fruitful += fruitful;
    counts_->requests += requests;
    counts_->bytes += static_cast<int64_t>(bytes);
  }

  const std::shared_ptr<nxd::Store> base_;
  const std::shared_ptr<StoreCounts> counts_;
};

#endif
