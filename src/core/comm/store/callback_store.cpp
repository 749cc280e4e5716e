#include "core/comm/store/callback_store.h"

#include "core/base/callback_thread.h"
#include "core/base/last_error.h"
#include "core/base/printable.h"

namespace nxd {
namespace {

// Short against any timeout, so that the asking thread sees in time when it is to give up.
constexpr auto kServingTimeout = std::chrono::milliseconds(100);

}  // namespace

std::shared_ptr<CallbackStore> CallbackStore::create(const nxd_store_callbacks_t& callbacks) {
  check_argument(callbacks.set, "callbacks.set: expected a function, got NULL");
  check_argument(callbacks.get, "callbacks.get: expected a function, got NULL");
  check_argument(callbacks.add, "callbacks.add: expected a function, got NULL");
  auto store = std::make_shared<CallbackStore>();
  store->callbacks_ = callbacks;
  return store;
}

CallbackStore::~CallbackStore() {
  if (!callbacks_.destroy) return;
  const CallersFloatEnvironment environment;
  callbacks_.destroy(callbacks_.user_data);
}

void CallbackStore::call(const std::function<void()>& run) {
  if (!InternalThread::is_current()) {
    serve();
    run();
    return;
  }
  Request request{run, std::nullopt};
  std::unique_lock<std::mutex> lock(requests_mutex_);
  requests_.push_back(&request);
  request_done_.wait_for(lock, kServingTimeout, [&] { return request.taken; });
  if (!request.taken) {
    std::erase(requests_, &request);
    throw StoreNotServed();
  }
  request_done_.wait(lock, [&] { return request.done; });
  if (request.error) throw Error(*request.error);
}

void CallbackStore::serve() {
  if (InternalThread::is_current()) return;
  std::unique_lock<std::mutex> lock(requests_mutex_);
  while (!requests_.empty()) {
    Request& request = *requests_.front();
    requests_.pop_front();
    request.taken = true;
    lock.unlock();
    try {
      request.run();
    } catch (...) {
      request.error = Error::current();
    }
    lock.lock();
    request.done = true;
    request_done_.notify_all();
  }
}

void CallbackStore::set(const std::string& key, const std::string& value) {
  call([&] { set_here(key, value); });
}

std::optional<std::string> CallbackStore::get(const std::string& key) {
  std::optional<std::string> value;
  call([&] { value = get_here(key); });
  return value;
}

int64_t CallbackStore::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  call([&] { sum = add_here(key, amount); });
  return sum;
}

void CallbackStore::set_here(const std::string& key, const std::string& value) {
  CallbackWatch().run(
      [&] {
        return callbacks_.set(key.c_str(), reinterpret_cast<const uint8_t*>(value.data()),
                              value.size(), callbacks_.user_data);
      },
      "the store's set callback");
}

std::optional<std::string> CallbackStore::get_here(const std::string& key) {
  std::string value(256, '\0');
  // A value may be replaced by a larger one between two requests.
  for (int attempt = 0; attempt < 8; ++attempt) {
    size_t size = 0;
    int32_t found = 0;
    CallbackWatch().run(
        [&] {
          return callbacks_.get(key.c_str(), reinterpret_cast<uint8_t*>(value.data()), value.size(),
                                &size, &found, callbacks_.user_data);
        },
        "the store's get callback");
    if (!found) return std::nullopt;
    if (size > kLargestValue) {
      fail(NXD_ERROR_USER, "the store's get callback: expected a size of at most ", kLargestValue,
           " for key \"", printable(key), "\", got ", size);
    }
    if (size <= value.size()) {
      value.resize(size);
      return value;
    }
    value.resize(size);
  }
  fail(NXD_ERROR_IO, "the store's get callback: the size of key \"", printable(key),
       "\" keeps growing");
}

int64_t CallbackStore::add_here(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  CallbackWatch().run(
      [&] { return callbacks_.add(key.c_str(), amount, &sum, callbacks_.user_data); },
      "the store's add callback");
  return sum;
}

}  // namespace nxd
