#include "core/comm/callback_store.h"

#include "core/base/last_error.h"

namespace nxd {

std::shared_ptr<CallbackStore> CallbackStore::create(const nxd_store_callbacks_t& callbacks) {
  check_argument(callbacks.set, "callbacks.set: expected a function, got NULL");
  check_argument(callbacks.get, "callbacks.get: expected a function, got NULL");
  check_argument(callbacks.add, "callbacks.add: expected a function, got NULL");
  auto store = std::make_shared<CallbackStore>();
  store->callbacks_ = callbacks;
  return store;
}

CallbackStore::~CallbackStore() {
  if (callbacks_.destroy) callbacks_.destroy(callbacks_.user_data);
}

void CallbackStore::set(const std::string& key, const std::string& value) {
  check_callback(callbacks_.set(key.c_str(), reinterpret_cast<const uint8_t*>(value.data()),
                                value.size(), callbacks_.user_data),
                 "the store's set callback");
}

std::optional<std::string> CallbackStore::get(const std::string& key) {
  std::string value(256, '\0');
  // A value may be replaced by a larger one between two questions.
  for (int attempt = 0; attempt < 8; ++attempt) {
    size_t size = 0;
    int32_t found = 0;
    check_callback(callbacks_.get(key.c_str(), reinterpret_cast<uint8_t*>(value.data()),
                                  value.size(), &size, &found, callbacks_.user_data),
                   "the store's get callback");
    if (!found) return std::nullopt;
    if (size <= value.size()) {
      value.resize(size);
      return value;
    }
    value.resize(size);
  }
  fail(NXD_ERROR_IO, "the store's get callback: the size of key \"", key, "\" keeps growing");
}

int64_t CallbackStore::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  check_callback(callbacks_.add(key.c_str(), amount, &sum, callbacks_.user_data),
                 "the store's add callback");
  return sum;
}

}  // namespace nxd
