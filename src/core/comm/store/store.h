#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fork_guard.h"
#include "core/comm/net/deadline.h"

namespace nxd {

// A thread of the library's own gets this from a store of callbacks when no thread of the caller's
// is inside a call to run them. Asking again later may work.
class StoreNotServed : public Error {
 public:
  StoreNotServed()
      : Error(NXD_ERROR_TIMEOUT, "no thread is inside an nxd call to run the store's callbacks") {}
};

// Key-value store through which ranks find one another. Values are bytes. Every method may be
// called from several threads at once.
class Store : public std::enable_shared_from_this<Store> {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Does not wait for the key.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  // Values beyond this belong in a file.
  static constexpr size_t kLargestValue = size_t{1} << 30;

  // Atomic; a key that is absent counts as 0. The value reads as decimal digits.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;

  // The values of all these keys, or none when one is absent. Does not wait.
  virtual std::optional<std::vector<std::string>> get_all(const std::vector<std::string>& keys);

  // Asks until the key is there or the deadline has passed; asks at least once. The longest pause
  // between two requests is for many ranks to spare one store.
  std::optional<std::string> wait(const std::string& key, const Deadline& deadline,
                                  std::chrono::milliseconds longest_pause = kUsualPause);
  static constexpr std::chrono::milliseconds kUsualPause{20};

  // As wait, for no longer than longest_wait_ms(), which bounds each call.
  virtual std::optional<std::string> wait_bounded(const std::string& key, int64_t timeout_ms) {
    return wait(key, Deadline::after_ms(timeout_ms));
  }
  virtual int64_t longest_wait_ms() const { return INT64_MAX; }

  // A channel to the same keys whose calls take at most timeout_ms each and do not queue behind
  // this one's.
  virtual std::shared_ptr<Store> open_channel(int64_t timeout_ms);
  // True if threads of the library's own need another thread, which is inside a call of the
  // caller's, to call serve() now and then; and that, which runs what they have asked for.
  virtual bool needs_serving() const { return false; }
  virtual void serve() {}
  // Host that the store's server runs on; "" when there is none.
  virtual std::string server_host() const { return ""; }
  // True if the keys are lost when this process ends.
  virtual bool serves() const { return false; }
  // Stops serving; later calls fail.
  virtual void stop_serving() {}

  // The number of worlds that this rank has joined through this object so far. It tells the worlds
  // that one program makes one after another from keys that an earlier job left behind.
  int next_world(int rank);

 private:
  std::mutex mutex_;
  std::map<int, int> worlds_;
};

// Asks a store until it answers. Throws what it throws, and what poll does meanwhile.
template <class Ask, class Poll>
auto ask_store(Ask&& ask, Poll&& poll) {
  for (;;) {
    try {
      return ask();
    } catch (const StoreNotServed&) {
      poll();
    }
  }
}

// Part of a store: every key gets a prefix.
class PrefixStore : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> base, std::string prefix)
      : base_(std::move(base)), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override {
    base_->set(prefix_ + key, value);
  }
  std::optional<std::string> get(const std::string& key) override {
    return base_->get(prefix_ + key);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return base_->add(prefix_ + key, amount);
  }
  std::optional<std::vector<std::string>> get_all(const std::vector<std::string>& keys) override {
    std::vector<std::string> whole;
    for (const std::string& key : keys) whole.push_back(prefix_ + key);
    return base_->get_all(whole);
  }
  std::shared_ptr<Store> open_channel(int64_t timeout_ms) override {
    return std::make_shared<PrefixStore>(base_->open_channel(timeout_ms), prefix_);
  }
  bool needs_serving() const override { return base_->needs_serving(); }
  void serve() override { base_->serve(); }
  std::string server_host() const override { return base_->server_host(); }
  bool serves() const override { return base_->serves(); }
  void stop_serving() override { base_->stop_serving(); }

 private:
  std::shared_ptr<Store> base_;
  std::string prefix_;
};

// The decimal integer that add() keeps under a key; INVALID_ARGUMENT when it is none, with so many
// bytes of it in the message.
int64_t parse_counter(const std::string& key, const std::string& value);
constexpr size_t kShownOfValue = 40;

// Beyond the range of integers a sum goes on at its other end.
inline int64_t wrapping_sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// Rejects a value that another process wrote under a key: CORRUPT. Any process that reaches a store
// may write there, so its values are checked before they are used.
[[noreturn]] void fail_unreadable(const std::string& key, const std::string& value);

}  // namespace nxd
