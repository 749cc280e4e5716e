#pragma once

#include "core/comm/store.h"

namespace nxd {

// Store over the caller's callbacks. They run on the thread that is inside the nxd call.
class CallbackStore : public Store {
 public:
  // On failure the callbacks' destroy is not called.
  static std::shared_ptr<CallbackStore> create(const nxd_store_callbacks_t& callbacks);
  CallbackStore() = default;
  ~CallbackStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  nxd_store_callbacks_t callbacks_{};
};

}  // namespace nxd
