#include "core/comm/tcp_store.h"

#include <algorithm>
#include <cstring>

#include "core/comm/store_patience.h"

namespace nxd {
namespace {

using namespace tcp_store;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_bytes(std::string& out, const std::string& bytes) {
  put<uint64_t>(out, bytes.size());
  out += bytes;
}

std::string validation() {
  std::string out;
  put<uint8_t>(out, kValidate);
  put<uint32_t>(out, kMagic);
  return out;
}

}  // namespace

TcpStore::TcpStore(std::string host, int port, int64_t timeout_ms,
                   std::shared_ptr<TcpStoreServer> server)
    : host_(std::move(host)), port_(port), timeout_ms_(timeout_ms), server_(std::move(server)) {
  const Deadline deadline = Deadline::after_ms(timeout_ms_);
  if (!speaks_torch_2(deadline)) dialect_ = kTorch1;
  connect(deadline);
}

Fd TcpStore::open_connection(const Deadline& deadline) const {
  return port_ == 0 ? connect_local(host_, deadline) : connect_tcp(host_, port_, deadline);
}

std::string TcpStore::address() const { return port_ == 0 ? "@" + host_ : text(host_, ":", port_); }

// Asks on a connection of its own. To a server of torch 1.x the validation and the four one-byte
// requests read as SET with a key of 0x07070707'3C85F7CE bytes, which it cannot allocate: it drops
// the connection and goes on. A server of torch 2.x answers each with the number of its keys.
bool TcpStore::speaks_torch_2(const Deadline& deadline) {
  const Fd fd = open_connection(deadline);
  std::string probe = validation();
  for (int i = 0; i < 4; ++i) put<uint8_t>(probe, kGetNumKeys);
  int64_t counts[4];
  try {
    return send_all(fd.get(), probe.data(), probe.size(), deadline) &&
           receive_all(fd.get(), counts, sizeof counts, deadline);
  } catch (const Error& e) {
    fail_silent(e);
  }
}

void TcpStore::connect(const Deadline& deadline) {
  fd_ = open_connection(deadline);
  if (!dialect_.validates) return;
  const std::string hello = validation();
  if (!send_all(fd_.get(), hello.data(), hello.size(), deadline)) {
    fail(NXD_ERROR_IO, "the store at ", address(), " refused the connection");
  }
}

void TcpStore::check_connected() const {
  if (!fd_) fail(NXD_ERROR_IO, "the connection to the store at ", address(), " was lost");
}

void TcpStore::fail_silent(const Error& e) {
  fd_.reset();
  fail(e.status(), "the store at ", address(), ": ", e.what(), " within ", bound_ms(), " ms");
}

int64_t TcpStore::bound_ms() const { return StorePatience::bound_ms(timeout_ms_); }

void TcpStore::read(void* answer, size_t size, const Deadline& deadline) {
  try {
    if (receive_all(fd_.get(), answer, size, deadline)) return;
  } catch (const Error& e) {
    fail_silent(e);
  }
  fd_.reset();
  check_connected();
}

void TcpStore::exchange(const std::string& request, void* answer, size_t size,
                        const Deadline& deadline) {
  check_connected();
  try {
    if (!send_all(fd_.get(), request.data(), request.size(), deadline)) fd_.reset();
  } catch (const Error& e) {
    fail_silent(e);
  }
  check_connected();
  if (size > 0) read(answer, size, deadline);
}

void TcpStore::set(const std::string& key, const std::string& value) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string request;
  put<uint8_t>(request, dialect_.set);
  put_bytes(request, key);
  put_bytes(request, value);
  exchange(request, nullptr, 0, Deadline::after_ms(bound_ms()));
}

// Asking a server of torch for an absent key makes it drop the connection, so check first. Our keys
// are never deleted.
std::optional<std::string> TcpStore::get(const std::string& key) {
  auto values = get_all({key});
  if (!values) return std::nullopt;
  return std::move(values->front());
}

// However many the keys, two journeys to the server and back.
std::optional<std::vector<std::string>> TcpStore::get_all(const std::vector<std::string>& keys) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Deadline deadline = Deadline::after_ms(bound_ms());
  std::string request;
  put<uint8_t>(request, dialect_.check);
  put<uint64_t>(request, keys.size());
  for (const std::string& key : keys) put_bytes(request, key);
  uint8_t ready = kNotReady;
  exchange(request, &ready, sizeof ready, deadline);
  if (ready != kReady) return std::nullopt;
  request.clear();
  for (const std::string& key : keys) {
    put<uint8_t>(request, dialect_.get);
    put_bytes(request, key);
  }
  exchange(request, nullptr, 0, deadline);
  std::vector<std::string> values;
  for (size_t i = 0; i < keys.size(); ++i) values.push_back(read_value(deadline));
  return values;
}

std::string TcpStore::read_value(const Deadline& deadline) {
  uint64_t size = 0;
  read(&size, sizeof size, deadline);
  if (size > kSizeLimit) {
    fd_.reset();
    fail(NXD_ERROR_IO, "the store at ", address(), " answers with a value of ", size, " bytes");
  }
  // No memory for more than has come, whatever the server says.
  constexpr uint64_t kPart = uint64_t{1} << 20;
  std::string value;
  while (value.size() < size) {
    const size_t had = value.size(), part = std::min(kPart, size - had);
    value.resize(had + part);
    read(value.data() + had, part, deadline);
  }
  return value;
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string request;
  put<uint8_t>(request, dialect_.add);
  put_bytes(request, key);
  put<int64_t>(request, amount);
  int64_t sum = 0;
  exchange(request, &sum, sizeof sum, Deadline::after_ms(bound_ms()));
  return sum;
}

std::shared_ptr<Store> TcpStore::open_channel(int64_t timeout_ms) {
  return std::make_shared<TcpStore>(host_, port_, timeout_ms, server_);
}

void TcpStore::stop_serving() {
  std::lock_guard<std::mutex> lock(mutex_);
  fd_.reset();
  if (server_) server_->stop();
}

std::shared_ptr<Store> open_tcp_store(const char* host, int port, bool serve, int64_t timeout_ms) {
  constexpr int64_t kDefaultTimeoutMs = 300000;
  check_argument(host && *host, "host: expected a name or address, got ",
                 host ? "an empty string" : "NULL");
  check_argument(port >= (serve ? 0 : 1) && port <= 65535, "port: expected ", serve ? 0 : 1,
                 " to 65535, got ", port);
  check_argument(timeout_ms >= 0, "timeout_ms: expected 0 or more, got ", timeout_ms);
  std::shared_ptr<TcpStoreServer> server;
  if (serve) {
    server = std::make_shared<TcpStoreServer>(port);
    port = server->port();
  }
  return std::make_shared<TcpStore>(host, port, timeout_ms > 0 ? timeout_ms : kDefaultTimeoutMs,
                                    server);
}

}  // namespace nxd
