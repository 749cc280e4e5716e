#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <optional>

#include "core/comm/store/store.h"

namespace nxd {

// Store over the caller's callbacks. They run on threads that are inside an nxd call: a thread of
// the library's own leaves its request in a queue, and waits a little for such a thread to serve
// it.
class CallbackStore : public Store {
 public:
  // On failure the callbacks' destroy is not called.
  static std::shared_ptr<CallbackStore> create(const nxd_store_callbacks_t& callbacks);
  CallbackStore() = default;
  ~CallbackStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool needs_serving() const override { return true; }
  void serve() override;

 private:
  struct Request {
    std::function<void()> run;
    std::optional<Error> error;
    bool taken = false, done = false;
  };

  void call(const std::function<void()>& run);
  void set_here(const std::string& key, const std::string& value);
  std::optional<std::string> get_here(const std::string& key);
  int64_t add_here(const std::string& key, int64_t amount);

  nxd_store_callbacks_t callbacks_{};
  std::mutex requests_mutex_;
  std::condition_variable request_done_;
  std::deque<Request*> requests_;  // each waits on the stack of the thread that asks
};

}  // namespace nxd
