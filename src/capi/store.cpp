// nxd/store.h: stores.
#include <algorithm>
#include <cstring>

#include "capi/handles.h"
#include "capi/options.h"
#include "core/base/last_error.h"
#include "core/base/printable.h"
#include "core/comm/store/callback_store.h"
#include "core/comm/store/file_store.h"
#include "core/comm/store/local_store.h"
#include "core/comm/store/tcp_store.h"

using namespace nxd;

nxd_status_t nxd_store_create_local(nxd_store_t** out_store) {
  return guard([&] {
    auto& out = output(out_store, "out_store");
    out = new nxd_store{std::make_shared<LocalStore>()};
  });
}

nxd_status_t nxd_store_create_file(const char* path, nxd_store_t** out_store) {
  return guard([&] {
    auto& out = output(out_store, "out_store");
    check_argument(path && *path, "path: expected the name of a file, got ",
                   path ? "an empty string" : "NULL");
    out = new nxd_store{std::make_shared<FileStore>(path)};
  });
}

nxd_status_t nxd_store_create_tcp(const char* host, int32_t port, int32_t is_server,
                                  int64_t timeout_ms, nxd_store_t** out_store) {
  return guard([&] {
    auto& out = output(out_store, "out_store");
    out = new nxd_store{open_tcp_store(host, port, flag(is_server, "is_server"), timeout_ms)};
  });
}

nxd_status_t nxd_store_create_callbacks(const nxd_store_callbacks_t* callbacks,
                                        nxd_store_t** out_store) {
  return guard([&] {
    auto& out = output(out_store, "out_store");
    check_argument(callbacks, "callbacks: expected a pointer, got NULL");
    const auto known = read_options(callbacks, nxd_store_callbacks_t{}, "callbacks");
    out = new nxd_store{CallbackStore::create(known)};
  });
}

nxd_status_t nxd_store_get_port(nxd_store_t* store, int32_t* out_port) {
  return guard([&] {
    auto& out = output(out_port, "out_port");
    const auto* tcp = dynamic_cast<TcpStore*>(&unwrap(store));
    check_argument(tcp, "store: expected one made by nxd_store_create_tcp");
    out = tcp->port();
  });
}

nxd_status_t nxd_store_set(nxd_store_t* store, const char* key, const void* value, size_t size) {
  return guard([&] {
    const std::shared_ptr<Store> s = hold(store);
    check_argument(key, "key: expected a string, got NULL");
    check_argument(value || size == 0, "value: expected a pointer to ", size, " bytes, got NULL");
    check_argument(size <= Store::kLargestValue, "size: expected at most ", Store::kLargestValue,
                   " bytes, got ", size);
    s->set(key, std::string(static_cast<const char*>(value), size));
  });
}

nxd_status_t nxd_store_get(nxd_store_t* store, const char* key, int64_t timeout_ms, void* buf,
                           size_t cap, size_t* out_size) {
  return guard([&] {
    auto& out = output(out_size, "out_size");
    const std::shared_ptr<Store> s = hold(store);
    check_argument(key, "key: expected a string, got NULL");
    check_argument(timeout_ms >= 0, "timeout_ms: expected 0 or more, got ", timeout_ms);
    check_argument(buf || cap == 0, "buf: expected a pointer to ", cap, " bytes, got NULL");
    const auto value = s->wait_bounded(key, timeout_ms);
    if (!value) {
      const int64_t longest_ms = s->longest_wait_ms();
      fail(NXD_ERROR_TIMEOUT, "key \"", printable(key), "\" was not set within ",
           std::min(timeout_ms, longest_ms), " ms",
           longest_ms < timeout_ms ? ", the store's own timeout" : "");
    }
    out = value->size();
    check_argument(value->size() <= cap, "cap: expected at least ", value->size(),
                   " bytes for the value of \"", printable(key), "\", got ", cap);
    if (!value->empty()) std::memcpy(buf, value->data(), value->size());
  });
}

nxd_status_t nxd_store_add(nxd_store_t* store, const char* key, int64_t amount,
                           int64_t* out_value) {
  return guard([&] {
    auto& out = output(out_value, "out_value");
    const std::shared_ptr<Store> s = hold(store);
    check_argument(key, "key: expected a string, got NULL");
    out = s->add(key, amount);
  });
}

// In a forked child the connection and the server are the parent's.
void nxd_store_destroy(nxd_store_t* store) {
  const Uncancelled whole_call;
  if (store && !store->fork_guard.is_foreign()) delete store;
}
